"""A storage process with a bug in it: python -m tests.history.planted NAME services.storage.

Each bug is one that a change could bring back, put where the service keeps it from happening. Where that
place is no more, the process does not start, and so neither does the run.
"""

import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import asyncpg

import services.storage.server  # noqa: F401 - a bug is planted in what is loaded
from services.storage.models import HitlState, HitlTask, Session
from services.storage.store.cache.local import LocalCache
from services.storage.store.cache.window import MessageWindow
from services.storage.store.postgres import database, hitl_tasks, session_lock
from services.storage.store.postgres import migrate as migrations
from services.storage.store.postgres.new_messages import NEW_MESSAGES
from services.storage.store.postgres.storage import PostgresConversationStorage

Plant = Callable[[], None]


def _revision_unchecked() -> None:
    """A write is taken whatever revision it expects."""
    _rewrite("s.revision = :expected_revision", "CAST(:expected_revision AS bigint) IS NOT NULL")
    _replace_everywhere("check_revision", lambda expected, *, actual: None)


def _request_id_dropped() -> None:
    """A repeat is carried out once more."""
    _replace(PostgresConversationStorage, "_record", lambda self, *names, **more: None)


def _question_state_unchecked() -> None:
    """A question is claimed, whether it was answered before or not."""
    find = hitl_tasks.find_task

    async def find_open(connection: database.Connection, **names: str) -> HitlTask | None:
        task = await find(connection, **names)
        return task and replace(task, state=HitlState.PENDING)

    _replace(session_lock, "find_task", find_open)


def _stale_holder_finishes() -> None:
    """A run that was ended without its holder is finished by it all the same."""
    _rewrite("r.status,", "CAST(2 AS smallint) AS status,", within="AS message_id_exists")


def _revision_read_before_the_lock() -> None:
    """An append counts on from the revision that it saw before it waited."""
    seen = "SELECT o.revision + 1 FROM sessions AS o WHERE o.user_id = s.user_id AND o.session_id = s.session_id"
    _rewrite("SET revision = s.revision + 1, message_count", f"SET revision = ({seen}), message_count")


def _half_a_batch() -> None:
    """The last message of a batch is counted, and not stored."""
    _rewrite(
        NEW_MESSAGES, f"{NEW_MESSAGES} WHERE n.nth = 1 OR n.nth < CAST(:count AS bigint)", within="the_messages AS"
    )


def _lease_unchecked() -> None:
    """A run begins in a session that another one holds."""
    _rewrite("s.active_run_id,", "CAST('' AS text) AS active_run_id,", within="AS active_expired")


def _metadata_overwritten() -> None:
    """New metadata takes the place of all that was there."""
    _rewrite("s.metadata ||", "CAST('{}' AS jsonb) ||")


def _deletion_leaves_messages() -> None:
    """Messages stay when their session is deleted."""
    migrate = migrations.migrate

    async def without_the_key(url: str, limits: database.PostgresLimits) -> None:
        await migrate(url, limits)
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("ALTER TABLE messages DROP CONSTRAINT IF EXISTS messages_user_id_session_id_fkey")
        finally:
            await connection.close()

    _replace_everywhere("migrate", without_the_key)


def _deletion_forgets_requests() -> None:
    """A late repeat brings back what it had made in a session that was deleted since."""
    _rewrite("UPDATE requests SET session_id = NULL, result = NULL", "DELETE FROM requests")


def _cache_believed() -> None:
    """Cached messages are served without a look at their revision."""

    def is_at(window: MessageWindow, session: Session) -> bool:
        return window.uid == session.uid

    _replace(MessageWindow, "is_at", is_at)


def _cache_key_without_the_user() -> None:
    """Two users' sessions of one name share a place in the cache, and nobody looks whose it is."""

    def is_at(window: MessageWindow, session: Session) -> bool:
        return window.user_id != session.user_id or (window.uid, window.revision) == (session.uid, session.revision)

    def without_the_user(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda cache, key, *value: method(cache, key[1:], *value)

    for name in ("get", "put", "drop"):
        _replace(LocalCache, name, without_the_user(getattr(LocalCache, name)))
    _replace(MessageWindow, "is_at", is_at)


PLANTED: dict[str, Plant] = {
    plant.__name__.removeprefix("_"): plant
    for plant in (
        _revision_unchecked,
        _request_id_dropped,
        _question_state_unchecked,
        _stale_holder_finishes,
        _revision_read_before_the_lock,
        _half_a_batch,
        _lease_unchecked,
        _metadata_overwritten,
        _deletion_leaves_messages,
        _deletion_forgets_requests,
        _cache_believed,
        _cache_key_without_the_user,
    )
}


def _rewrite(old: str, new: str, *, within: str = "") -> None:
    """Alters every statement that has the text, and `within` too: those that are made already, and those to come."""
    read = database.Statement.__init__

    def altered(statement: database.Statement, sql: str) -> None:
        read(statement, sql.replace(old, new) if within in sql else sql)

    _replace(database.Statement, "__init__", altered)
    made = [value for value in _values() if isinstance(value, database.Statement)]
    fits = [statement for statement in made if old in statement.sql and within in statement.sql]
    for statement in fits:
        statement.sql = statement.sql.replace(old, new)
    parts = [value for value in _values() if isinstance(value, str)]
    sources = [Path(module.__file__).read_text(encoding="utf-8") for module in _modules() if module.__file__]
    if not fits and not any(old in text for text in (*parts, *sources)):
        raise LookupError(f"no statement has {old!r} to plant a bug in")


def _replace_everywhere(name: str, new: Any) -> None:
    """A function, also where it was imported by name."""
    places = [module for module in _modules() if callable(getattr(module, name, None))]
    if not places:
        raise LookupError(f"there is no {name} to plant a bug in")
    for place in places:
        setattr(place, name, new)


def _replace(place: Any, name: str, new: Any) -> None:
    if not hasattr(place, name):
        raise LookupError(f"there is no {name} to plant a bug in")
    setattr(place, name, new)


def _modules() -> Sequence[ModuleType]:
    return [module for name, module in sys.modules.items() if name.startswith("services.storage.store.")]


def _values() -> Iterator[object]:
    """What the modules hold by name, in tables too."""
    for module in _modules():
        for value in vars(module).values():
            yield value
            if isinstance(value, dict):
                yield from value.values()


def main() -> None:
    """Plants the bug, then runs the module as `python -m` would."""
    _, name, module = sys.argv
    PLANTED[name]()
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
