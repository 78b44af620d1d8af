import pytest

from services.agent.knowledge.loading import ENDINGS, Block, ending_fault
from services.agent.knowledge.loading.blocks import Unreadable
from services.agent.knowledge.loading.readers import open_document


def blocks_of(ending: str, content: bytes) -> list[Block]:
    return list(open_document(ending, content).blocks)


def test_markdown_headings_open_sections() -> None:
    loaded = blocks_of(".md", b"# Title\n\nIntro.\n\n## One ##\nText.\n\nUnder\n---\nMore.\n\nTop\n===\nLast.\n")
    assert loaded == [
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
    loaded = blocks_of(".md", b"# Title\n\n```sh\n# not a heading\n~~~\n```\n\n## Heading\n\nText.")
    assert [block.text for block in loaded if block.heading_level] == ["Title", "Heading"]


def test_a_rule_or_a_table_underlines_no_heading() -> None:
    loaded = blocks_of(".md", b"---\nkey: value\n---\n\nText\ngoes on\n---\n\n| a |\n|---|\n| b |\n")
    assert not [block for block in loaded if block.heading_level]


def test_a_short_line_alone_is_a_heading_of_plain_text() -> None:
    loaded = blocks_of(
        ".txt", "保修条款\n\n保修期为两年。\n\nReturns\n\nSend it back.\n\nSee below:\n\nDone.\n".encode()
    )
    assert [(block.text, block.heading_level) for block in loaded] == [
        ("保修条款", 1),
        ("保修期为两年。", 0),
        ("Returns", 2),
        ("Send it back.\n\nSee below:\n\nDone.", 0),
    ]


CHINESE = "保修条款\n\n保修期为两年，自购买之日起计算。\n"
FRENCH = "Le réglage d'été est déjà terminé – voilà.\nÀ bientôt!"
GERMAN = "Größe für Mühlräder über Öfen"


@pytest.mark.parametrize("ending", [".md", ".txt", ".html"])
@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *(
            (text, encoding)
            for text in (CHINESE, FRENCH, GERMAN, "Plain text, and no more.")
            for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32", "gb18030")
        ),
        *((text, encoding) for text in (CHINESE, FRENCH, GERMAN) for encoding in ("utf-16-le", "utf-16-be")),
        (FRENCH.replace("–", "-"), "latin-1"),
        (FRENCH, "cp1252"),
        (GERMAN, "latin-1"),
    ],
)
def test_the_encoding_of_a_text_is_found(ending: str, text: str, encoding: str) -> None:
    try:
        content = text.encode(encoding)
    except UnicodeEncodeError:
        content = text.encode("utf-8")
    read = " ".join(block.text for block in blocks_of(ending, content))
    assert read.split() == text.split()


def test_chinese_is_found_behind_a_long_stretch_of_ascii() -> None:
    text = "word " * 40_000 + CHINESE
    assert blocks_of(".txt", text.encode("gb18030"))[-1].text.endswith("自购买之日起计算。")


def test_one_broken_character_does_not_make_a_text_another_encoding() -> None:
    content = (CHINESE * 20).encode().replace("两".encode(), b"\xff", 1)
    text = "".join(block.text for block in blocks_of(".txt", content))
    assert text.count("\ufffd") == 1 and text.count("两年") == 19


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_byte_order_marks_and_line_ends_leave_no_trace(encoding: str) -> None:
    assert blocks_of(".txt", "第一行\r\n第二行。\rEnd.".encode(encoding)) == [Block("第一行\n第二行。\nEnd.")]


@pytest.mark.parametrize("filename", ["a.exe", "a", ".md", "md", "a.md.zip", "a.doc"])
def test_an_ending_that_is_not_known_is_refused_with_those_that_are(filename: str) -> None:
    fault = ending_fault(filename)
    assert fault is not None and all(ending in fault for ending in ENDINGS)


@pytest.mark.parametrize("filename", ["a.TXT", "a.b.Md", "报告.PDF", "a.htm", "a.html", "a.docx"])
def test_an_ending_is_known_in_any_case(filename: str) -> None:
    assert ending_fault(filename) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n\t\r\n",
        b"\xef\xbb\xbf",
        b"a\0b",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xfea",
        "a\0".encode("utf-16"),
        bytes(range(256)),
        b"%PDF-1.7\nplain",
        b"PK\x03\x04plain",
        b"{\\rtf1 plain}",
    ],
)
@pytest.mark.parametrize("ending", [".md", ".txt", ".html"])
def test_what_holds_no_readable_text_is_unreadable(ending: str, content: bytes) -> None:
    with pytest.raises(Unreadable):
        blocks_of(ending, content)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_empty_file_is_unreadable(ending: str) -> None:
    with pytest.raises(Unreadable, match="empty"):
        blocks_of(ending, b"")


def test_a_long_line_is_read_whole() -> None:
    line = "A sentence. " * 100_000
    assert "".join(block.text for block in blocks_of(".txt", line.encode())) == line


def test_a_long_run_of_text_is_passed_on_in_pieces() -> None:
    text = "a line of text\n" * 200_000
    pieces = blocks_of(".txt", text.encode())
    assert max(len(piece.text) for piece in pieces) < len(text) / 2
    assert "\n".join(piece.text for piece in pieces) == text.strip()


def test_headings_beyond_a_bound_are_kept_as_text() -> None:
    loaded = blocks_of(".md", b"# a\n" * 30_000)
    assert len(loaded) < 30_000
    assert sum(block.text.count("a") for block in loaded) == 30_000
