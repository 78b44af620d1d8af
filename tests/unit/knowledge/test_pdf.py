import pytest

from services.agent.knowledge.loading import Block
from services.agent.knowledge.loading.blocks import Unreadable
from services.agent.knowledge.loading.readers import open_document
from tests.unit.knowledge.made_files import PdfFile, encrypted_pdf


def read(content: bytes) -> list[Block]:
    return list(open_document(".pdf", content).blocks)


def test_each_page_is_told_with_its_number() -> None:
    opened = open_document(".pdf", PdfFile([["First page."], [], ["第三页。"]]).content())
    assert opened.page_count == 3
    assert list(opened.blocks) == [Block("First page.", page_number="1"), Block("第三页。", page_number="3")]


def test_pages_are_numbered_as_the_document_does() -> None:
    labels = "0 << /S /r >> 2 << /S /D /P (A-) /St 5 >>"
    blocks = read(PdfFile([["a"], ["b"], ["c"], ["d"]], labels=labels).content())
    assert [block.page_number for block in blocks] == ["i", "ii", "A-5", "A-6"]


def test_the_outline_gives_the_headings_where_they_stand() -> None:
    pages = [["Before.", "2.1 Install the", "pump", "Turn it on."], ["泵的保修", "两年。"]]
    outline = [("Install the pump", 0), ("泵的保修", 1), ("Not on its page", 1)]
    assert read(PdfFile(pages, outline=outline).content()) == [
        Block("Before.", page_number="1"),
        Block("Install the pump", 1, "1"),
        Block("Turn it on.", page_number="1"),
        Block("泵的保修", 1, "2"),
        Block("Not on its page", 1, "2"),
        Block("两年。", page_number="2"),
    ]


def test_lines_that_the_margin_broke_are_joined_as_their_script_asks() -> None:
    pages = [
        [
            "The pump must be switched off before the cover is",
            "opened, and stay off.",
            "Then go on.",
            "保修期内的产品可以免费维修，如果产品在保修期内出现质量问题请联系",
            "客服并提供购买凭证。",
        ]
    ]
    [block] = read(PdfFile(pages).content())
    assert block.text == (
        "The pump must be switched off before the cover is opened, and stay off.\nThen go on.\n"
        "保修期内的产品可以免费维修，如果产品在保修期内出现质量问题请联系客服并提供购买凭证。"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"plain text", "no PDF"),
        (PdfFile([["a"]]).content()[:300], "broken"),
        (encrypted_pdf(), "encrypted"),
        (PdfFile([[], []]).content(), "scan"),
        (PdfFile([["a"]], replaced={2: "<< /Type /Pages /Count 9 /Kids [2 0 R 2 0 R] >>"}).content(), "broken"),
        (PdfFile([["a"]], replaced={2: "<< /Type /Pages /Count 999999 /Kids [6 0 R] >>"}).content(), "broken"),
    ],
)
def test_what_is_no_readable_document_is_unreadable(content: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read(content)


def test_an_outline_that_leads_back_to_itself_ends() -> None:
    entry = "<< /Title (A) /Parent 8 0 R /Next 9 0 R /First 9 0 R /Dest [6 0 R /Fit] >>"
    made = PdfFile([["A", "text"]], outline=[("A", 0), ("B", 0)], replaced={9: entry})
    assert read(made.content()) == [Block("A", 1, "1"), Block("text", page_number="1")]
