"""Page tokens come back as they went, and nothing else passes for one."""

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.errors import InvalidPageToken
from services.runtime.page_token import PagedQuery, decode, encode

QUERY = PagedQuery(method="ListSessions", user_id="u1")
SHAPE = (int, str)

ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=128)


@given(position=st.integers(-(2**63), 2**63 - 1), session_id=ids)
def test_a_key_comes_back_as_it_went(position: int, session_id: str) -> None:
    assert decode(QUERY, encode(QUERY, (position, session_id)), *SHAPE) == (position, session_id)


@given(time=st.datetimes(timezones=st.just(UTC)), session_id=ids)
def test_a_time_comes_back_to_the_microsecond(time: datetime, session_id: str) -> None:
    assert decode(QUERY, encode(QUERY, (time, session_id)), datetime, str) == (time, session_id)


@pytest.mark.parametrize("microseconds", [2**63, -(2**63), 10**30])
def test_a_time_beyond_all_calendars_is_refused(microseconds: int) -> None:
    with pytest.raises(InvalidPageToken):
        decode(QUERY, encode(QUERY, (microseconds,)), datetime)


def test_the_longest_key_makes_a_token_that_is_taken() -> None:
    key = (-(2**63), "\N{GRINNING FACE}" * 128)
    assert decode(QUERY, encode(QUERY, key), *SHAPE) == key


@pytest.mark.parametrize(
    "other",
    [
        PagedQuery(method="ListMessages", user_id="u1"),
        PagedQuery(method="ListSessions", user_id="u2"),
        PagedQuery(method="ListSessions", user_id="u1", filters=("s1",)),
        PagedQuery(method="ListSessions", user_id="u1", filters=(False,)),
    ],
)
def test_a_token_of_another_query_is_refused(other: PagedQuery) -> None:
    with pytest.raises(InvalidPageToken):
        decode(other, encode(QUERY, (1, "a")), *SHAPE)


def test_filters_do_not_run_into_each_other() -> None:
    token = encode(PagedQuery("m", "u", ("a", "b")), (1,))
    with pytest.raises(InvalidPageToken):
        decode(PagedQuery("m", "u", ("ab", "")), token, int)


def test_a_token_changed_at_any_character_is_refused() -> None:
    token = encode(QUERY, (7, "a session"))
    for place, character in enumerate(token):
        changed = token[:place] + ("B" if character == "A" else "A") + token[place + 1 :]
        with pytest.raises(InvalidPageToken):
            decode(QUERY, changed, *SHAPE)


@pytest.mark.parametrize("token", ["x", "====", "a b", "é", "\0", "A" * 1_025, "A" * 100_000, "W10", encode(QUERY, ())])
def test_what_is_no_token_of_ours_is_refused(token: str) -> None:
    with pytest.raises(InvalidPageToken):
        decode(QUERY, token, *SHAPE)


@given(token=st.text(max_size=200))
def test_no_text_breaks_the_reading_of_tokens(token: str) -> None:
    with pytest.raises(InvalidPageToken):
        decode(QUERY, token, *SHAPE)


@pytest.mark.parametrize(
    "key",
    [("a", 1), (1,), (1, "a", 2), (True, "a"), (2**63, "a"), (1, "nul \0 inside")],
)
def test_a_key_made_up_with_a_right_digest_must_have_the_right_form(key: tuple[int | str, ...]) -> None:
    with pytest.raises(InvalidPageToken):
        decode(QUERY, encode(QUERY, key), *SHAPE)


def test_padding_and_other_spellings_of_the_same_bytes_are_refused() -> None:
    token = encode(QUERY, (1, "ab"))
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    with pytest.raises(InvalidPageToken):
        decode(QUERY, base64.urlsafe_b64encode(raw + b" ").decode().rstrip("="), *SHAPE)
    with pytest.raises(InvalidPageToken):
        decode(QUERY, token + "=", *SHAPE)
