"""A trace on its way in: cleaned of what is none of it, and brought under its limit."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message as WireMessage

from askback.rag.v1.trace_pb2 import RagTrace, RetrievedChunk

MAX_TRACE_BYTES = 512 * 1_024
MAX_TRACE_PARTS = 10_000

# What a chunk is cited and found by is never cut.
_NEVER_CUT = frozenset({"filename", "page_number", "chunk_id"})

# What no part is smaller than: a tag and a length.
_SMALLEST_PART = 2


def has_too_many_parts(trace: RagTrace) -> bool:
    """Whether walking through its chunks, texts and sub-traces would hold everyone else up."""
    if trace.ByteSize() <= _SMALLEST_PART * MAX_TRACE_PARTS:
        return False
    parts = 0
    groups: list[WireMessage] = [trace]
    while groups:
        for field, value in groups.pop().ListFields():
            if field.is_repeated:
                parts += len(value)
            if parts > MAX_TRACE_PARTS:
                return True
            if isinstance(value, WireMessage):
                groups.append(value)
            elif field.name == "sub_traces":
                groups.extend(value)
    return False


def normalized(trace: RagTrace) -> RagTrace:
    """The trace as it is kept: declared fields and known values alone, and evidence that can be cited.

    NUL, which models and documents bring along, is dropped; sub-traces go one level deep.
    """
    kept = RagTrace()
    kept.CopyFrom(trace)
    for sub_trace in kept.sub_traces:
        del sub_trace.sub_traces[:]
    kept.DiscardUnknownFields()
    # Nearly every trace is clean, and finding that out costs a fifth of scrubbing it.
    if not _is_clean(kept):
        scrub(kept)
    for part in (kept, *kept.sub_traces):
        for chunks in (
            part.retrieved_chunks,
            part.initial_retrieved_chunks,
            part.rewrite_retrieved_chunks,
            part.hitl_targeted_retrieved_chunks,
        ):
            citable = [chunk for chunk in chunks if chunk.filename.strip()]
            if len(citable) < len(chunks):
                del chunks[:]
                chunks.extend(citable)
    return kept


def bounded(trace: RagTrace, *, limit: int = MAX_TRACE_BYTES) -> RagTrace:
    """The trace in at most `limit` bytes: chunk texts are cut, each by the same share, and no chunk is lost.

    Where they are not what makes it large, its other texts are cut as well. What is left then is names and
    numbers, and may be over the limit still.
    """
    if trace.ByteSize() <= limit:
        return trace
    cut = RagTrace()
    cut.CopyFrom(trace)
    texts = list(_texts(cut))
    _shorten([text for text in texts if text.is_evidence], by=cut.ByteSize() - limit)
    if (excess := cut.ByteSize() - limit) > 0:
        _shorten([text for text in texts if text.field not in _NEVER_CUT and not text.is_evidence], by=excess)
    return cut


def scrub(message: WireMessage) -> None:
    """Drops NUL from every text in the message, and enum values that this version does not know."""
    for field, value in message.ListFields():
        match field.type:
            case FieldDescriptor.TYPE_ENUM:
                if field.enum_type and value not in field.enum_type.values_by_number:
                    message.ClearField(field.name)
            case FieldDescriptor.TYPE_MESSAGE:
                for part in value if field.is_repeated else (value,):
                    scrub(part)
    for text in _own_texts(message):
        if "\0" in text.value:
            text.set(text.value.replace("\0", ""))


class _Fields(NamedTuple):
    """What a kind of message has that may need to be scrubbed, and where to look for more."""

    texts: Callable[[WireMessage], Iterable[str]]
    lists_of_texts: tuple[str, ...]
    enums: tuple[tuple[str, Container[int]], ...]
    groups: tuple[str, ...]
    lists_of_groups: tuple[str, ...]

    @property
    def texts_alone(self) -> bool:
        return not (self.lists_of_texts or self.enums or self.groups or self.lists_of_groups)


@cache
def _fields(kind: Descriptor) -> _Fields:
    def names(of_type: int, *, repeated: bool) -> tuple[str, ...]:
        return tuple(field.name for field in kind.fields if field.type == of_type and field.is_repeated == repeated)

    texts = names(FieldDescriptor.TYPE_STRING, repeated=False)
    return _Fields(
        texts=attrgetter(*texts) if texts else lambda _: (),
        lists_of_texts=names(FieldDescriptor.TYPE_STRING, repeated=True),
        enums=tuple(
            (field.name, frozenset(field.enum_type.values_by_number))
            for field in kind.fields
            if field.enum_type and not field.is_repeated
        ),
        groups=names(FieldDescriptor.TYPE_MESSAGE, repeated=False),
        lists_of_groups=names(FieldDescriptor.TYPE_MESSAGE, repeated=True),
    )


def _is_clean(message: WireMessage) -> bool:
    """Whether `scrub` would change nothing."""
    fields = _fields(message.DESCRIPTOR)
    if "\0" in "".join(fields.texts(message)):
        return False
    for name in fields.lists_of_texts:
        if "\0" in "".join(getattr(message, name)):
            return False
    for name, known in fields.enums:
        if getattr(message, name) not in known:
            return False
    for name in fields.groups:
        if message.HasField(name) and not _is_clean(getattr(message, name)):
            return False
    return all(_are_clean(parts) for name in fields.lists_of_groups if (parts := getattr(message, name)))


def _are_clean(parts: Sequence[WireMessage]) -> bool:
    fields = _fields(parts[0].DESCRIPTOR)
    if not fields.texts_alone:
        return all(map(_is_clean, parts))
    return "\0" not in "".join(map("".join, map(fields.texts, parts)))


class _Text(NamedTuple):
    """Where one text of a message is: a field, or one place in a repeated field."""

    owner: WireMessage
    field: str
    place: int | None

    @property
    def value(self) -> str:
        value = getattr(self.owner, self.field)
        return str(value if self.place is None else value[self.place])

    @property
    def is_evidence(self) -> bool:
        return self.field == "text" and isinstance(self.owner, RetrievedChunk)

    def set(self, value: str) -> None:
        if self.place is None:
            setattr(self.owner, self.field, value)
        else:
            getattr(self.owner, self.field)[self.place] = value


def _own_texts(message: WireMessage) -> Iterator[_Text]:
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            for place in range(len(value)) if field.is_repeated else (None,):
                yield _Text(message, field.name, place)


def _texts(message: WireMessage) -> Iterator[_Text]:
    yield from _own_texts(message)
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if field.is_repeated else (value,):
                yield from _texts(part)


def _shorten(texts: list[_Text], *, by: int) -> None:
    encoded = [text.value.encode() for text in texts]
    total = sum(map(len, encoded))
    left = max(0, total - by)
    for text, whole in zip(texts, encoded, strict=True):
        # Decoding drops the bytes of a character that was cut in two.
        text.set(whole[: len(whole) * left // (total or 1)].decode(errors="ignore"))
