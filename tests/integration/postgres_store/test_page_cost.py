"""A page costs what is on it, however much lies before and behind."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from services.storage.store.postgres import PostgresConversationStorage
from services.storage.store.results import SessionCursor

MESSAGES = 5_000
SESSIONS = 2_000
PAGE = 50
# One row more than the page tells whether there is another; the rest is for the session itself.
PAGE_ROWS = PAGE + 5
MIB = 1024 * 1024

_FILL = f"""
    INSERT INTO sessions (user_id, session_id, uid, title, message_count, create_time, update_time)
    SELECT 'u', 's-' || n, 'uid-' || n, 'a title', CASE n WHEN 1 THEN {MESSAGES} ELSE 0 END,
        now() - interval '1 second' * n, now() - interval '1 second' * n
    FROM generate_series(1, {SESSIONS}) AS n;
    INSERT INTO messages (user_id, session_id, position, message_id, type, status, content, create_time, trace)
    SELECT 'u', 's-1', n, 'm-' || n, 1 + n % 2, 1, 'a message', now(), '\\x00'
    FROM generate_series(1, {MESSAGES}) AS n;
    ANALYZE sessions, messages"""

# What index scans and whole scans went through, of both tables.
_ROWS_READ = """
    SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname IN ('sessions', 'messages'))
        + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN ('sessions', 'messages'))"""
_CONNECTED = """
    SELECT count(*) FROM pg_stat_activity WHERE application_name = 'askback-storage' AND datname = current_database()"""


class Meter:
    """Rows that PostgreSQL read since the meter was made, as it counts them once a connection is closed."""

    def __init__(self, administrator: asyncpg.Connection, store: PostgresConversationStorage):
        self._administrator = administrator
        self.store = store
        self._before = 0

    async def start(self) -> None:
        self._before = await self._administrator.fetchval(_ROWS_READ)

    async def rows_read(self) -> int:
        await self.store.close()
        async with asyncio.timeout(30):
            while True:
                if not await self._administrator.fetchval(_CONNECTED):
                    return int(await self._administrator.fetchval(_ROWS_READ) - self._before)
                await asyncio.sleep(0.01)


@pytest.fixture
async def meter(database_url: str, administrator: asyncpg.Connection) -> AsyncIterator[Meter]:
    tables = await PostgresConversationStorage.open(database_url)
    await tables.close()
    await administrator.execute(_FILL)
    await administrator.execute("SELECT pg_stat_force_next_flush()")
    store = await PostgresConversationStorage.open(database_url)
    meter = Meter(administrator, store)
    await meter.start()
    yield meter
    await store.close()


@pytest.mark.parametrize("descending", [False, True], ids=["oldest first", "newest first"])
@pytest.mark.parametrize("after", [None, MESSAGES // 2], ids=["first page", "in the middle"])
@pytest.mark.parametrize("include_traces", [True, False], ids=["with traces", "without"])
async def test_a_page_of_messages_reads_its_own_rows(
    meter: Meter, after: int | None, descending: bool, include_traces: bool
) -> None:
    page = await meter.store.list_messages(
        "u",
        "s-1",
        page_size=PAGE,
        after=after,
        descending=descending,
        include_traces=include_traces,
        max_bytes=MIB,
    )
    assert len(page.messages) == PAGE and page.next is not None
    assert PAGE <= await meter.rows_read() <= PAGE_ROWS


async def test_the_newest_messages_of_a_session_are_loaded_by_their_own_rows(meter: Meter) -> None:
    loaded = await meter.store.load_session("u", "s-1", max_messages=PAGE, include_traces=True, max_bytes=MIB)
    assert len(loaded.messages) == PAGE and loaded.truncated
    assert PAGE <= await meter.rows_read() <= PAGE_ROWS


async def test_loading_all_that_fits_reads_little_beyond_it(meter: Meter, administrator: asyncpg.Connection) -> None:
    """However many small messages would have fitted: lengths of a step of them at a time, then what is returned."""
    await administrator.execute("UPDATE messages SET content = repeat('x', 1000)")
    await administrator.execute("VACUUM messages")
    await administrator.execute("SELECT pg_stat_force_next_flush()")
    await meter.start()
    loaded = await meter.store.load_session("u", "s-1", max_messages=0, include_traces=False, max_bytes=300_000)
    assert 250 < len(loaded.messages) < 300 and loaded.truncated
    assert await meter.rows_read() < 2_500


@pytest.mark.parametrize("continued", [False, True], ids=["first page", "in the middle"])
@pytest.mark.parametrize("full", [False, True], ids=["basic", "full"])
async def test_a_page_of_sessions_reads_its_own_rows(
    meter: Meter, administrator: asyncpg.Connection, full: bool, continued: bool
) -> None:
    after = None
    if continued:
        middle = f"s-{SESSIONS // 2}"
        time = await administrator.fetchval("SELECT update_time FROM sessions WHERE session_id = $1", middle)
        after = SessionCursor(time, middle)
        await administrator.execute("SELECT pg_stat_force_next_flush()")
        await meter.start()
    page = await meter.store.list_sessions("u", page_size=PAGE, after=after, full=full, max_bytes=MIB)
    assert len(page.sessions) == PAGE and page.next is not None
    assert PAGE <= await meter.rows_read() <= PAGE_ROWS


async def test_a_page_of_session_ids_reads_its_own_rows(meter: Meter) -> None:
    page = await meter.store.list_session_ids("u", page_size=PAGE, after=None)
    assert len(page.session_ids) == PAGE
    assert PAGE <= await meter.rows_read() <= PAGE_ROWS
