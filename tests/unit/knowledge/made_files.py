"""Small documents of the kinds that are no text, made byte by byte."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"

_CATALOG, _PAGES, _FONT, _CHINESE, _CHINESE_CID = range(1, 6)
_FIRST_FREE = 6


@dataclass
class PdfFile:
    """A PDF of pages of lines, laid out as one that was printed from a word processor."""

    pages: Sequence[Sequence[str]]
    labels: str = ""
    """The inside of /Nums, for pages that are not numbered from 1."""
    outline: Sequence[tuple[str, int]] = ()
    """Titles, each with the index of its page."""
    catalog: str = ""
    """Further entries of the catalog."""
    trailer: str = ""
    """Further entries of the trailer."""
    replaced: Mapping[int, str] = field(default_factory=dict)
    """Other bodies for objects, by number."""
    objects: dict[int, bytes] = field(default_factory=dict, init=False)

    def page_object(self, index: int) -> int:
        return _FIRST_FREE + 2 * index

    def content(self) -> bytes:
        self.objects = {
            _FONT: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
            _CHINESE: (
                b"<< /Type /Font /Subtype /Type0 /BaseFont /STSong-Light /Encoding /UniGB-UCS2-H"
                b" /DescendantFonts [%d 0 R] >>" % _CHINESE_CID
            ),
            _CHINESE_CID: (
                b"<< /Type /Font /Subtype /CIDFontType0 /BaseFont /STSong-Light /DW 1000"
                b" /CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) /Supplement 4 >> >>"
            ),
        }
        for index, lines in enumerate(self.pages):
            self._add_page(self.page_object(index), lines)
        kids = " ".join(f"{self.page_object(index)} 0 R" for index in range(len(self.pages)))
        self.objects[_PAGES] = f"<< /Type /Pages /Count {len(self.pages)} /Kids [{kids}] >>".encode()
        outline = self._add_outline(_FIRST_FREE + 2 * len(self.pages))
        labels = f"/PageLabels << /Nums [{self.labels}] >>" if self.labels else ""
        self.objects[_CATALOG] = f"<< /Type /Catalog /Pages {_PAGES} 0 R {outline} {labels} {self.catalog} >>".encode()
        for number, body in self.replaced.items():
            self.objects[number] = body.encode()
        return self._written()

    def _add_page(self, number: int, lines: Sequence[str]) -> None:
        shown = "".join(f"1 0 0 1 72 {760 - 16 * at} Tm {_shown(line)} " for at, line in enumerate(lines))
        stream = f"BT {shown}ET".encode()
        self.objects[number] = (
            f"<< /Type /Page /Parent {_PAGES} 0 R /MediaBox [0 0 612 792] /Contents {number + 1} 0 R"
            f" /Resources << /Font << /F1 {_FONT} 0 R /F2 {_CHINESE} 0 R >> >> >>"
        ).encode()
        self.objects[number + 1] = b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream)

    def _add_outline(self, root: int) -> str:
        if not self.outline:
            return ""
        numbers = range(root + 1, root + 1 + len(self.outline))
        self.objects[root] = (
            f"<< /Type /Outlines /First {numbers[0]} 0 R /Last {numbers[-1]} 0 R /Count {len(numbers)} >>".encode()
        )
        for number, (title, index) in zip(numbers, self.outline, strict=True):
            written = f"\ufeff{title}".encode("utf-16-be").hex()
            following = f"/Next {number + 1} 0 R" if number < numbers[-1] else ""
            self.objects[number] = (
                f"<< /Title <{written}> /Parent {root} 0 R {following} /Dest [{self.page_object(index)} 0 R /Fit] >>"
            ).encode()
        return f"/Outlines {root} 0 R"

    def _written(self) -> bytes:
        written = io.BytesIO()
        written.write(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
        places = {}
        for number, body in sorted(self.objects.items()):
            places[number] = written.tell()
            written.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
        start = written.tell()
        size = max(places) + 1
        written.write(b"xref\n0 %d\n0000000000 65535 f \n" % size)
        for number in range(1, size):
            written.write(b"%010d %05d %c \n" % (places.get(number, 0), 0, b"n" if number in places else b"f"))
        trailer = f"<< /Size {size} /Root {_CATALOG} 0 R {self.trailer} >>"
        written.write(f"trailer\n{trailer}\nstartxref\n{start}\n%%EOF\n".encode())
        return written.getvalue()


def _shown(line: str) -> str:
    if line.isascii():
        escaped = line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        return f"/F1 12 Tf ({escaped}) Tj"
    return f"/F2 12 Tf <{line.encode('utf-16-be').hex()}> Tj"


def encrypted_pdf() -> bytes:
    """One that no password opens: its checks were not made from any."""
    encrypt = f"/Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -44 /O <{'11' * 32}> /U <{'22' * 32}> >>"
    return PdfFile([["secret"]], trailer=f"{encrypt} /ID [<00><00>]").content()


def docx(body: str, *, parts: Mapping[str, str | bytes] | None = None, declaration: str = "") -> bytes:
    """A .docx whose body is this XML, in which `w:` is the namespace of its elements."""
    files: dict[str, str | bytes] = {
        "_rels/.rels": _relations({"officeDocument": "word/document.xml"}),
        "word/document.xml": f'{declaration}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
        **(parts or {}),
    }
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return written.getvalue()


def _relations(targets: Mapping[str, str]) -> str:
    entries = "".join(
        f'<Relationship Id="r{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets.items())
    )
    return f'<Relationships xmlns="{_RELATIONS}">{entries}</Relationships>'
