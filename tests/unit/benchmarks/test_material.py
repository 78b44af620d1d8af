"""What every subject stores."""

import json

from google.protobuf.json_format import ParseDict

from askback.rag.v1.trace_pb2 import RagTrace
from benchmarks.material import TEXT_BYTES, TRACE_BYTES, SessionSet, stock


def test_texts_have_their_size() -> None:
    assert {len(text.encode()) for turn in stock() for text in (turn.human, turn.ai)} == {TEXT_BYTES}


def test_a_trace_has_about_its_size_and_is_one() -> None:
    for turn in stock():
        assert abs(len(json.dumps(turn.trace, separators=(",", ":"))) - TRACE_BYTES) < 16
        assert ParseDict(turn.trace, RagTrace()).retrieved_chunks


def test_sets_of_one_name_are_the_same_sessions() -> None:
    assert SessionSet("a", 4, 2).places() == SessionSet("a", 4, 2).places()
    assert not set(SessionSet("a", 4, 2).places()) & set(SessionSet("b", 4, 2).places())


def test_sessions_are_one_users_where_that_is_asked_for() -> None:
    assert len({place.user_id for place in SessionSet("a", 4, 2, one_user=True).places()}) == 1
    assert len({place.user_id for place in SessionSet("a", 4, 2).places()}) == 4
