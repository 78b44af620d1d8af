import io
import re
import zipfile

import docx as python_docx
import pytest

from services.agent.knowledge.loading import Block
from services.agent.knowledge.loading.blocks import Unreadable
from services.agent.knowledge.loading.readers import open_document
from tests.unit.knowledge.made_files import docx


def read(content: bytes) -> list[Block]:
    return list(open_document(".docx", content).blocks)


def text_of(content: bytes) -> str:
    return "\n".join(block.text for block in read(content))


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def test_a_document_of_a_word_processor_is_read_with_headings_lists_and_tables() -> None:
    document = python_docx.Document()
    document.add_heading("泵手册", 0)
    document.add_paragraph("引言。")
    document.add_heading("Install", 1)
    written = document.add_paragraph("Turn ")
    written.add_run("it").bold = True
    written.add_run(" on.").add_break()
    written.add_run("Next\tline.")
    document.add_paragraph("one", style="List Bullet")
    document.add_paragraph("two", style="List Number")
    table = document.add_table(3, 2)
    for row, column, text in ((0, 0, "Key"), (0, 1, "Value"), (1, 1, "1"), (2, 1, "2")):
        table.cell(row, column).text = text
    table.cell(1, 0).merge(table.cell(2, 0)).text = "speed"
    inner = table.cell(0, 1).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "x", "y"
    document.add_heading("更多", 2)
    document.add_paragraph("End.")
    saved = io.BytesIO()
    document.save(saved)
    assert read(saved.getvalue()) == [
        Block("泵手册", 1),
        Block("引言。"),
        Block("Install", 2),
        Block("Turn it on.\nNext line.\n\n- one\n- two\n\n| Key | Value x, y |\n| speed | 1 |\n| speed | 2 |"),
        Block("更多", 3),
        Block("End."),
    ]


def test_a_paragraphs_own_outline_level_makes_it_a_heading() -> None:
    body = paragraph("A", '<w:outlineLvl w:val="1"/>') + paragraph("text", '<w:outlineLvl w:val="9"/>')
    assert read(docx(body)) == [Block("A", 2), Block("text")]


def test_notes_stand_where_they_are_referred_to() -> None:
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    parts = {
        "word/_rels/document.xml.rels": (
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
            f'<Relationship Id="r" Type="{kinds}/footnotes" Target="footnotes.xml"/></Relationships>'
        ),
        "word/footnotes.xml": (
            f'<w:footnotes xmlns:w="{word}"><w:footnote w:id="0" w:type="separator"/>'
            '<w:footnote w:id="2"><w:p><w:r><w:t>Except pumps.</w:t></w:r></w:p></w:footnote></w:footnotes>'
        ),
    }
    body = '<w:p><w:r><w:t>Two years</w:t><w:footnoteReference w:id="2"/></w:r><w:r><w:t>.</w:t></w:r></w:p>'
    assert text_of(docx(body, parts=parts)) == "Two years (Except pumps.)."


def test_what_was_deleted_or_moved_or_is_no_text_is_left_out() -> None:
    body = (
        "<w:p><w:del><w:r><w:delText>old</w:delText></w:r></w:del><w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom>"
        "<w:r><w:instrText>PAGE</w:instrText></w:r><w:ins><w:r><w:t>new</w:t></w:r></w:ins></w:p>"
    )
    assert text_of(docx(body)) == "new"


def test_text_in_a_drawing_is_read_once() -> None:
    box = "<w:txbxContent><w:p><w:r><w:t>Boxed</w:t></w:r></w:p></w:txbxContent>"
    alternate = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    body = (
        f'<w:p><w:r><m:AlternateContent xmlns:m="{alternate}"><m:Choice>{box}</m:Choice>'
        f"<m:Fallback>{box}</m:Fallback></m:AlternateContent><w:t>Beside</w:t></w:r></w:p>"
    )
    assert text_of(docx(body)).split() == ["Boxed", "Beside"]


def _archive(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return written.getvalue()


ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"%PDF-1.7", "no Word document"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "encrypted"),
        (_archive({"a.txt": b"text"}), "no Word document"),
        (_archive({"word/document.xml": b"<a/>"}), "no Word document"),
        (_archive({"word/document.xml": b"<a>"}), "broken"),
        (docx(paragraph("x"))[:-40], "broken"),
        (docx(paragraph("")), "no text"),
        (docx("<w:sdt>" * 10_000 + "</w:sdt>" * 10_000), "nested"),
        (docx(paragraph("&e9;"), declaration=f'<!DOCTYPE d [<!ENTITY e0 "lol">{ENTITIES}]>'), "document type"),
        (
            docx(paragraph("&e;"), declaration='<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/hostname">]>'),
            "document type",
        ),
        (docx(paragraph("x"), parts={"_rels/.rels": "<!DOCTYPE d><d/>"}), "document type"),
    ],
)
def test_what_is_no_readable_document_is_unreadable(content: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=re.escape(why)):
        read(content)


def test_a_part_that_is_encrypted_is_told_as_that() -> None:
    # The flag of its entry, in the central directory and before its bytes.
    content = bytearray(docx(paragraph("x")))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := content.find(signature, at + 1)) >= 0:
            content[at + offset] |= 1
    with pytest.raises(Unreadable, match="encrypted"):
        read(bytes(content))
