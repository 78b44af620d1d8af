import pytest

from services.agent.errors import DocumentUnreadable
from services.agent.knowledge.loading import Block, load_document
from services.runtime.errors import InvalidField


def test_markdown_headings_open_sections() -> None:
    loaded = load_document("a.md", b"# Title\n\nIntro.\n\n## One ##\nText.\n\nUnder\n---\nMore.\n\nTop\n===\nLast.\n")
    assert loaded.blocks == [
        Block("Title", 1),
        Block("Intro."),
        Block("One", 2),
        Block("Text."),
        Block("Under", 2),
        Block("More."),
        Block("Top", 1),
        Block("Last."),
    ]


def test_a_hash_inside_a_code_fence_is_no_heading() -> None:
    loaded = load_document("a.md", b"# Title\n\n```sh\n# not a heading\n~~~\n```\n\n## Heading\n\nText.")
    assert [block.text for block in loaded.blocks if block.heading_level] == ["Title", "Heading"]


def test_a_rule_or_a_table_underlines_no_heading() -> None:
    loaded = load_document("a.md", b"---\nkey: value\n---\n\nText\ngoes on\n---\n\n| a |\n|---|\n| b |\n")
    assert not [block for block in loaded.blocks if block.heading_level]


def test_a_short_line_alone_is_a_heading_of_plain_text() -> None:
    loaded = load_document(
        "a.txt", "保修条款\n\n保修期为两年。\n\nReturns\n\nSend it back.\n\nSee below:\n\nDone.\n".encode()
    )
    assert [(block.text, block.heading_level) for block in loaded.blocks] == [
        ("保修条款", 1),
        ("保修期为两年。", 0),
        ("Returns", 2),
        ("Send it back.\n\nSee below:\n\nDone.", 0),
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_byte_order_marks_and_line_ends_leave_no_trace(encoding: str) -> None:
    loaded = load_document("A.TXT", "第一行\r\n第二行。\rEnd.".encode(encoding))
    assert loaded.blocks == [Block("第一行\n第二行。\nEnd.")]


@pytest.mark.parametrize("filename", ["a.exe", "a", ".md", "md", "a.md.zip"])
def test_an_ending_that_is_not_known_is_refused_with_those_that_are(filename: str) -> None:
    with pytest.raises(InvalidField) as caught:
        load_document(filename, b"text")
    (violation,) = caught.value.violations
    assert violation.field == "header.filename"
    assert ".txt" in violation.description
    assert ".md" in violation.description


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n\t\r\n",
        b"\xef\xbb\xbf",
        b"a\0b",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xfea",
        b"caf\xe9",
        "a\0".encode("utf-16"),
    ],
)
@pytest.mark.parametrize("filename", ["a.md", "a.txt"])
def test_what_holds_no_readable_text_is_unreadable(filename: str, content: bytes) -> None:
    with pytest.raises(DocumentUnreadable) as caught:
        load_document(filename, content)
    assert caught.value.metadata == {"filename": filename}


def test_headings_beyond_a_bound_are_kept_as_text() -> None:
    loaded = load_document("a.md", b"# a\n" * 30_000)
    assert len(loaded.blocks) < 30_000
    assert sum(block.text.count("a") for block in loaded.blocks) == 30_000
