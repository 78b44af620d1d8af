"""What a write costs, and what it leaves, in the tables."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest

from services.storage.errors import SessionNotFound
from services.storage.models import MessageType, NewMessage
from services.storage.store.commands import AppendMessages, SaveSession
from services.storage.store.events import NoEventLog
from services.storage.store.postgres import PostgresConversationStorage, PostgresLimits
from services.storage.store.postgres.failures import StatementFault

LONG = 5_000
MIB = 1024 * 1024

_FILL = f"""
    INSERT INTO sessions (user_id, session_id, uid, revision, message_count, create_time, update_time)
    VALUES ('u', 's', 'uid', 1, {LONG}, now(), now());
    INSERT INTO messages (user_id, session_id, position, message_id, type, status, content, create_time, trace)
    SELECT 'u', 's', n, 'm-' || n, 1 + n % 2, 1, 'message ' || n, now(), '\\x00' FROM generate_series(1, {LONG}) AS n;
    INSERT INTO runs (user_id, run_id, session_id, request_id, holder_id, status, fencing_token, lease,
        lease_expire_time, human_position, human_message_id, create_time, finish_time)
    SELECT 'u', 'r-' || n, 's', '', '', 3, n, '1 s', now(), 2 * n - 1, 'm-' || (2 * n - 1), now(), now()
    FROM generate_series(1, {LONG // 2}) AS n;
    INSERT INTO hitl_tasks (user_id, task_id, session_id, run_id, original_question, prompt, options, kind, answers,
        resume_state, state, create_time, expire_time)
    SELECT 'u', 't-' || n, 's', 'r-' || n, '', '', '{{}}', 1, '{{}}', '', 3, now(), now()
    FROM generate_series(1, {LONG // 2}) AS n"""

# Told by PostgreSQL itself, of every statement, also of one that cascades.
_REFUSE_LARGE_STATEMENTS = """
    CREATE FUNCTION refuse_large() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF (SELECT count(*) FROM gone) > 1000 THEN
            RAISE EXCEPTION 'too many rows at once' USING ERRCODE = 'P0001';
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER large AFTER DELETE ON messages
        REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION refuse_large();
    CREATE TRIGGER large AFTER DELETE ON runs
        REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION refuse_large();
    CREATE TRIGGER large AFTER DELETE ON hitl_tasks
        REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION refuse_large();
    CREATE TRIGGER large AFTER DELETE ON sessions
        REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION refuse_large()"""


class ForgottenRuns(NoEventLog):
    """Remembers which runs' events it was told to forget."""

    def __init__(self) -> None:
        self.run_ids: list[str] = []

    async def forget(self, user_id: str, run_ids: Sequence[str]) -> None:
        self.run_ids += run_ids


@pytest.fixture
def events() -> ForgottenRuns:
    return ForgottenRuns()


@pytest.fixture
async def store(database_url: str, events: ForgottenRuns) -> AsyncIterator[PostgresConversationStorage]:
    store = await PostgresConversationStorage.open(database_url, events=events)
    try:
        yield store
    finally:
        await store.close()


def _message(content: str, *, message_id: str = "") -> NewMessage:
    return NewMessage(type=MessageType.HUMAN, content=content, message_id=message_id)


async def _append(store: PostgresConversationStorage, *contents: str, session_id: str = "s") -> None:
    messages = [_message(content) for content in contents]
    await store.append_messages(AppendMessages(user_id="u", session_id=session_id, messages=messages))


async def _save(store: PostgresConversationStorage, messages: Sequence[NewMessage]) -> None:
    await store.save_session(SaveSession(user_id="u", session_id="s", messages=messages, metadata={}))


async def _versions(administrator: asyncpg.Connection) -> dict[str, str]:
    """What each message's row is stored as: a row that is written anew is stored elsewhere."""
    rows = await administrator.fetch("SELECT message_id, ctid::text || xmin::text AS version FROM messages")
    return {row["message_id"]: row["version"] for row in rows}


async def test_an_append_reads_none_of_the_history(database_url: str, administrator: asyncpg.Connection) -> None:
    """So that it costs the same however long that is."""
    store = await PostgresConversationStorage.open(database_url)
    await store.close()
    await administrator.execute(f"{_FILL}; ANALYZE; SELECT pg_stat_force_next_flush()")
    read = """
        SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname IN ('messages', 'sessions'))
            + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN ('messages', 'sessions'))"""
    before = await administrator.fetchval(read)
    store = await PostgresConversationStorage.open(database_url)
    for _ in range(10):
        await _append(store, "one", "two")
    await store.close()
    connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'askback-storage'"
    async with asyncio.timeout(30):
        while True:
            if not await administrator.fetchval(f"{connected} AND datname = current_database()"):
                break
            await asyncio.sleep(0.01)
    assert 10 <= await administrator.fetchval(read) - before <= 100


async def test_saving_a_history_writes_only_what_has_changed(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    messages = [_message(f"{n}", message_id=f"m-{n}") for n in range(100)]
    await _save(store, messages)
    before = await _versions(administrator)
    messages[50] = _message("changed", message_id="m-50")
    await _save(store, [*messages, _message("new", message_id="m-100")])
    after = await _versions(administrator)
    assert {message_id for message_id, version in after.items() if before.get(message_id) != version} == {
        "m-50",
        "m-100",
    }


async def test_saving_a_history_that_begins_alike_moves_only_the_rest(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    messages = [_message(f"{n}", message_id=f"m-{n}") for n in range(10)]
    await _save(store, messages)
    before = await _versions(administrator)
    del messages[7]
    await _save(store, messages)
    after = await _versions(administrator)
    assert {message_id for message_id, version in after.items() if before[message_id] != version} == {"m-8", "m-9"}


async def test_a_history_of_a_hundred_thousand_messages_is_saved(store: PostgresConversationStorage) -> None:
    """Within the limit of a statement, at first and again."""
    text = "x" * 100
    messages = [_message(f"{n} {text}", message_id=f"m-{n}") for n in range(100_000)]
    for _ in range(2):
        await _save(store, messages)
    assert (await store.get_session("u", "s")).message_count == 100_000


async def test_a_long_history_is_turned_round(store: PostgresConversationStorage) -> None:
    """Where all of it moves, and more than one statement takes."""
    messages = [_message(f"{n}", message_id=f"m-{n}") for n in range(21_000)]
    await _save(store, messages)
    await _save(store, [*messages[1:], _message("new"), messages[0]])
    loaded = await store.load_session("u", "s", max_messages=0, include_traces=False, max_bytes=16 * MIB)
    assert [message.content for message in loaded.messages] == [*(str(n) for n in range(1, 21_000)), "new", "0"]
    assert [message.position for message in loaded.messages] == list(range(1, 21_002))


@pytest.mark.parametrize("whole", ["delete_session", "delete_user_data"])
async def test_no_statement_of_a_deletion_deletes_much(
    store: PostgresConversationStorage, administrator: asyncpg.Connection, events: ForgottenRuns, whole: str
) -> None:
    await administrator.execute(f"{_FILL}; {_REFUSE_LARGE_STATEMENTS}")
    if whole == "delete_session":
        assert await store.delete_session("u", "s") == LONG
    else:
        for number in range(40):
            await _append(store, *map(str, range(40)), session_id=f"small-{number}")
        assert await store.delete_user_data("u") == 41
    for table in ("sessions", "messages", "runs", "hitl_tasks"):
        assert await administrator.fetchval(f"SELECT count(*) FROM {table}") == 0
    assert sorted(events.run_ids) == sorted(f"r-{n}" for n in range(1, LONG // 2 + 1))


async def test_no_statement_that_takes_messages_back_deletes_much(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    await administrator.execute(f"{_FILL}; {_REFUSE_LARGE_STATEMENTS}")
    deleted = await store.delete_messages("u", "s", after_position=1)
    assert (deleted.count, await administrator.fetchval("SELECT count(*) FROM messages")) == (LONG - 1, 1)


@pytest.mark.parametrize("whole", ["delete_session", "delete_user_data"])
async def test_a_deletion_that_fails_leaves_the_session_whole(
    store: PostgresConversationStorage, administrator: asyncpg.Connection, events: ForgottenRuns, whole: str
) -> None:
    """Its events too; and it can be repeated."""
    await administrator.execute(_FILL)
    await administrator.execute("""
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = 'P0001'; END $$;
        CREATE TRIGGER failing BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION fail()""")

    async def delete() -> int:
        if whole == "delete_session":
            return await store.delete_session("u", "s", request_id="d")
        return await store.delete_user_data("u", request_id="d")

    with pytest.raises(StatementFault):
        await delete()
    assert (await store.get_session("u", "s")).message_count == LONG
    assert await administrator.fetchval("SELECT count(*) FROM messages") == LONG
    assert events.run_ids == []
    await administrator.execute("DROP TRIGGER failing ON sessions")
    await delete()
    assert len(events.run_ids) == LONG // 2
    with pytest.raises(SessionNotFound):
        await store.get_session("u", "s")


async def test_records_of_requests_hold_no_text(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    append = AppendMessages(
        user_id="u", session_id="s", messages=[_message("the words", message_id="the-id")], request_id="the-request"
    )
    await store.append_messages(append)
    await store.save_session(
        SaveSession(
            user_id="u",
            session_id="s",
            messages=[_message("other words")],
            metadata={"a key": "a value"},
            request_id="the-request",
        )
    )
    await store.delete_messages("u", "s", after_position=0, request_id="the-request")
    records = str(await administrator.fetch("SELECT * FROM requests"))
    for text in ("words", "a key", "a value", "the-request"):
        assert text not in records


async def test_all_that_is_left_of_a_user_are_keyed_hashes(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    await store.append_messages(
        AppendMessages(
            user_id="u", session_id="the-session", messages=[_message("the words")], request_id="the-request"
        )
    )
    await store.delete_user_data("u", request_id="the-deletion")
    tables = await administrator.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    for table in [table["tablename"] for table in tables]:
        rows = str(await administrator.fetch(f'SELECT * FROM "{table}"'))
        assert table == "requests" or "user_id='u'" not in rows
        for name in ("the-session", "the-words", "the-request", "the-deletion"):
            assert name not in rows


async def test_every_write_works_behind_a_pooler(database_url: str) -> None:
    """Without prepared statements, each by a transaction of its own."""
    store = await PostgresConversationStorage.open(database_url, limits=PostgresLimits(prepared_statements=False))
    try:
        await _append(store, "one")
        await _save(store, [_message("two", message_id="m-2"), _message("three")])
        await _save(store, [_message("new"), _message("two", message_id="m-2")])
        assert (await store.delete_messages("u", "s", after_position=1)).count == 1
        assert await store.delete_user_data("u") == 1
    finally:
        await store.close()
