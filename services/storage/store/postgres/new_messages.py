"""Messages on their way into a statement: any number of them, as one array for each column."""

from collections.abc import Iterable, Sequence
from typing import Any

from services.runtime.errors import InvalidField
from services.storage.models import NewMessage

NEW_MESSAGES = """
    unnest(
        CAST(:nths AS bigint[]), CAST(:message_ids AS text[]), CAST(:types AS smallint[]),
        CAST(:statuses AS smallint[]), CAST(:contents AS text[]), CAST(:create_times AS timestamptz[]),
        CAST(:run_ids AS text[]), CAST(:traces AS bytea[]), CAST(:extras AS text[])
    ) AS n (nth, message_id, type, status, content, create_time, run_id, trace, extra_json)"""
"""With the parameters of `new_messages`."""


def new_messages(
    messages: Sequence[NewMessage], *, made_ids: Iterable[str] = (), nths: Iterable[int] | None = None
) -> dict[str, list[Any]]:
    """`made_ids` are for those without one, which is "" otherwise; `nths` are 1, 2, 3 … unless they are given."""
    made = iter(made_ids)
    return {
        "nths": list(range(1, len(messages) + 1) if nths is None else nths),
        "message_ids": [message.message_id or next(made, "") for message in messages],
        "types": [message.type for message in messages],
        "statuses": [message.status for message in messages],
        "contents": [message.content for message in messages],
        "create_times": [message.create_time for message in messages],
        "run_ids": [message.run_id for message in messages],
        "traces": [message.trace for message in messages],
        "extras": [message.extra_json for message in messages],
    }


def check_ids(messages: Sequence[NewMessage]) -> None:
    """Raises InvalidField where one comes twice."""
    ids = [message.message_id for message in messages if message.message_id]
    if len(set(ids)) < len(ids):
        raise InvalidField.of("messages", "may not have the same message_id twice")
