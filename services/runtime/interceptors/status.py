"""A ServiceError as google.rpc.Status, small enough for a trailing header."""

import unicodedata
from datetime import timedelta

from google.rpc import error_details_pb2, status_pb2

from services.runtime.errors import InvalidField, ServiceError

DETAILS_HEADER = "grpc-status-details-bin"
DOMAIN = "askback"

# Trailing headers over 8 KiB turn any error into RESOURCE_EXHAUSTED, whichever proxy it passes may allow less,
# and the text goes out twice: once more as grpc-message, percent-encoded.
_LARGEST_DETAILS = 1024
_LARGEST_TEXT = 256
_LONGEST_RETRY_S = 86_400


def status_of(error: ServiceError) -> status_pb2.Status:
    """What does not fit is left out whole, the least needed first; code, reason and retry time always fit."""
    status = status_pb2.Status(code=error.kind.value, message=_plain(str(error), _LARGEST_TEXT))
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    retry = error_details_pb2.RetryInfo()
    if error.retry_after_s is not None:
        retry.retry_delay.FromTimedelta(timedelta(seconds=min(max(error.retry_after_s, 0), _LONGEST_RETRY_S)))
    bad = error_details_pb2.BadRequest()

    def assembled() -> status_pb2.Status:
        whole = status_pb2.Status(code=status.code, message=status.message)
        whole.details.add().Pack(info)
        if bad.field_violations:
            whole.details.add().Pack(bad)
        if error.retry_after_s is not None:
            whole.details.add().Pack(retry)
        return whole

    best = assembled()
    for key, value in error.metadata.items():
        info.metadata[key] = _plain(value, _LARGEST_DETAILS)
        if (larger := assembled()).ByteSize() > _LARGEST_DETAILS:
            del info.metadata[key]
        else:
            best = larger
    for violation in error.violations if isinstance(error, InvalidField) else ():
        bad.field_violations.add(
            field=_plain(violation.field, _LARGEST_TEXT), description=_plain(violation.description, _LARGEST_TEXT)
        )
        if (larger := assembled()).ByteSize() > _LARGEST_DETAILS:
            break
        best = larger
    return best


def _plain(text: str, largest: int) -> str:
    """Without control characters or lone surrogates, and cut to so many bytes."""
    # A character is a byte or more: what is cut here was too long already.
    text = text[: largest + 1]
    if not (text.isascii() and text.isprintable()):
        text = "".join(" " if unicodedata.category(character) in ("Cc", "Cs") else character for character in text)
    encoded = text.encode()
    if len(encoded) <= largest:
        return text
    ellipsis = "…"
    return encoded[: largest - len(ellipsis.encode())].decode(errors="ignore") + ellipsis
