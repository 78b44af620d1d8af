"""A .docx file as what it is made of: XML parts in a ZIP archive, read piece by piece within bounds."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Final, Protocol
from xml.parsers import expat

from services.agent.knowledge.loading.blocks import MAX_DEPTH, Unreadable

_OLE: Final = b"\xd0\xcf\x11\xe0"
_MAX_UNPACKED_BYTES: Final = 512 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024
_BROKEN: Final = "it is a broken Word document"


class Handler(Protocol):
    """Is told of a part's elements, by their names without namespace, as are their attributes."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None: ...

    def end(self, name: str) -> None: ...

    def text(self, text: str) -> None: ...


class DocxPackage:
    """Its parts by name; raises Unreadable where it is none, and where its parts unpack to more than may be."""

    def __init__(self, content: bytes) -> None:
        if content.startswith(_OLE):
            # An encrypted .docx is a container of the older kind, as a .doc is.
            raise Unreadable("it is encrypted, or a Word document of the older kind (.doc)")
        try:
            self._archive = zipfile.ZipFile(BytesIO(content))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
            raise Unreadable("it is no Word document, or a broken one") from None
        self._unpacked = 0

    def has(self, name: str) -> bool:
        return name in self._archive.NameToInfo

    def parse(self, name: str, handler: Handler) -> Iterator[None]:
        """Tells the handler of the part, a piece for each step."""
        parser = _parser(handler)
        try:
            for piece in self._pieces(name):
                parser.Parse(piece, False)
                yield
            parser.Parse(b"", True)
        except expat.ExpatError:
            raise Unreadable(_BROKEN) from None
        yield

    def parse_whole(self, name: str, handler: Handler) -> None:
        for _ in self.parse(name, handler):
            pass

    def _pieces(self, name: str) -> Iterator[bytes]:
        info = self._archive.NameToInfo.get(name)
        if info is None:
            raise Unreadable("it is no Word document")
        if info.flag_bits & 1:
            raise Unreadable("it is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Unreadable(_BROKEN)
        try:
            with self._archive.open(info) as part:
                while piece := part.read(_PIECE_BYTES):
                    self._unpacked += len(piece)
                    if self._unpacked > _MAX_UNPACKED_BYTES:
                        raise Unreadable(f"it unpacks to more than {_MAX_UNPACKED_BYTES // 1024**2} MiB")
                    yield piece
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError):
            raise Unreadable(_BROKEN) from None


def _parser(handler: Handler) -> expat.XMLParserType:
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    depth = 0

    def start(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise Unreadable(f"its elements are nested more than {MAX_DEPTH} deep")
        handler.start(_local(name), {_local(key): value for key, value in attributes.items()})

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        handler.end(_local(name))

    def doctype(*_: object) -> None:
        # The format has none, and what is declared in one can grow without bound, or point elsewhere.
        raise Unreadable("it declares a document type, which no Word document does")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = handler.text
    parser.StartDoctypeDeclHandler = doctype
    return parser


def _local(name: str) -> str:
    return name.rpartition(" ")[2]
