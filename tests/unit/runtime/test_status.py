from typing import Any

from google.rpc import error_details_pb2
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.errors import FieldViolation, InvalidField, Kind, ServiceError
from services.runtime.interceptors.status import status_of


class Missing(ServiceError):
    kind = Kind.NOT_FOUND
    reason = "SESSION_NOT_FOUND"


def unpacked(status: Any, kind: Any) -> Any:
    for detail in status.details:
        found = kind()
        if detail.Unpack(found):
            return found
    return None


@given(text=st.text(), key=st.text(max_size=20), value=st.text(max_size=2000), retry=st.none() | st.floats(0, 1e6))
def test_any_error_fits_and_keeps_code_and_reason(text: str, key: str, value: str, retry: float | None) -> None:
    error = Missing(text * 50, metadata={key or "k": value}, retry_after_s=retry)
    status = status_of(error)
    assert status.ByteSize() <= 1024
    assert unpacked(status, error_details_pb2.ErrorInfo).reason == "SESSION_NOT_FOUND"
    assert (unpacked(status, error_details_pb2.RetryInfo) is None) == (retry is None)


@given(st.lists(st.tuples(st.text(), st.text(max_size=500)), min_size=1, max_size=30))
def test_any_violations_fit_and_the_first_is_kept(violations: list[tuple[str, str]]) -> None:
    status = status_of(InvalidField([FieldViolation(*each) for each in violations]))
    assert status.ByteSize() <= 1024
    assert len(unpacked(status, error_details_pb2.BadRequest).field_violations) >= 1


def test_metadata_that_does_not_fit_is_left_out_whole() -> None:
    status = status_of(Missing("gone", metadata={"long": "x" * 1000, "session_id": "s-1"}))
    assert dict(unpacked(status, error_details_pb2.ErrorInfo).metadata) == {"session_id": "s-1"}


def test_control_characters_become_spaces() -> None:
    assert status_of(Missing("a\r\nb\x00c\ud800")).message == "a  b c "


def test_a_long_text_is_cut_between_characters() -> None:
    message = status_of(Missing("漢" * 500)).message
    assert message == "漢" * 84 + "…"
