"""A cached value is read back as it was written, or not at all."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.storage.store.cache.envelope import Unreadable, pack_list, pack_window, unpack_list, unpack_window
from services.storage.store.cache.local import LocalCache
from services.storage.store.cache.session_list import SessionList
from services.storage.store.cache.window import MessageWindow, page_positions
from services.storage.store.encoded import NO_TRACE, EncodedMessage
from services.storage.store.results import SessionCursor

TIME = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


def _encoded(whole: bytes, trace_bytes: int, counted: int, is_readable: bool) -> EncodedMessage:
    if trace_bytes <= 0:
        return EncodedMessage(whole, whole, counted, trace_bytes, True)
    return EncodedMessage(b"b" + whole[:-trace_bytes], whole, counted, trace_bytes, is_readable)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
encoded_messages = st.builds(
    _encoded,
    whole=st.binary(min_size=20, max_size=60),
    trace_bytes=st.sampled_from([NO_TRACE, 0, 1, 19]),
    counted=st.integers(64, 2**31),
    is_readable=st.booleans(),
)
windows = st.builds(
    MessageWindow.holding,
    user_id=names,
    session_id=names,
    uid=names,
    revision=st.integers(0, 2**62),
    message_count=st.integers(0, 2**62),
    messages=st.lists(encoded_messages, max_size=5).map(tuple),
)
WINDOW = MessageWindow.holding(
    "u", "s", "uid", 7, 2, (_encoded(b"x" * 30, 5, 90, True), _encoded(b"y" * 9, NO_TRACE, 70, True))
)
LIST = SessionList(
    "u", False, 2**60, TIME, True, (SessionCursor(TIME, "s"), SessionCursor(TIME, "é")), (b"one", b"two")
)


@given(windows)
def test_a_window_is_read_back_as_it_was_written(window: MessageWindow) -> None:
    read = unpack_window(pack_window(window))
    assert read == window
    assert [message.bare is message.whole for message in read.messages] == [
        message.bare is message.whole for message in window.messages
    ]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("changes_time", [None, TIME])
def test_a_list_is_read_back_as_it_was_written(full: bool, changes_time: datetime | None) -> None:
    for held in (LIST, replace(LIST, cursors=(), parts=(), has_more=False)):
        written = replace(held, full=full, changes_time=changes_time)
        assert unpack_list(pack_list(written)) == written


@pytest.mark.parametrize(
    ("value", "unpack"), [(pack_window(WINDOW), unpack_window), (pack_list(LIST), unpack_list)], ids=["window", "list"]
)
def test_no_damage_goes_unseen(value: bytes, unpack: object) -> None:
    """Wherever it is cut, whatever bit is turned; nor is a value of the one kind read as the other."""
    assert callable(unpack)
    damaged = [value[:length] for length in range(len(value))]
    damaged += [
        value[:place] + bytes([value[place] ^ 1 << bit]) + value[place + 1 :]
        for place in range(len(value))
        for bit in range(8)
    ]
    damaged += [value + b"\0", pack_list(LIST) if unpack is unpack_window else pack_window(WINDOW)]
    for spoilt in damaged:
        with pytest.raises(Unreadable):
            unpack(spoilt)


@pytest.mark.parametrize(
    ("after", "descending", "expected"),
    [
        (None, False, [1, 2, 3]),
        (8, False, [9, 10]),
        (10, False, []),
        (99, False, []),
        (-5, False, [1, 2, 3]),
        (None, True, [10, 9, 8]),
        (3, True, [2, 1]),
        (1, True, []),
        (-5, True, []),
        (99, True, [10, 9, 8]),
    ],
)
def test_a_page_is_the_positions_after_its_place(after: int | None, descending: bool, expected: list[int]) -> None:
    assert list(page_positions(10, page_size=3, after=after, descending=descending)) == expected


class _Value:
    def __init__(self, memory_bytes: int):
        self.memory_bytes = memory_bytes


async def test_what_was_used_last_is_kept_within_the_bound() -> None:
    cache: LocalCache[str, _Value] = LocalCache(100, kept_s=3_600)
    for key in "abc":
        cache.put(key, _Value(30))
    cache.get("a")
    cache.put("d", _Value(40))
    assert (sorted(cache.keys()), cache.memory_bytes) == (["a", "c", "d"], 100)
    cache.put("a", _Value(10))
    assert cache.memory_bytes == 80
    cache.put("e", _Value(101))
    cache.drop("c")
    cache.drop("c")
    assert (sorted(cache.keys()), cache.memory_bytes) == (["a", "d"], 50)
    cache.close()
    assert (cache.keys(), cache.memory_bytes) == ((), 0)
