"""The tables of the pgvector index, and how they come to be: numbered steps, each applied once."""

from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.agent.knowledge.index.base import IndexUnusable

MAX_INDEXED_DIMENSIONS: Final = 2000
"""pgvector's limit for an HNSW index on `vector`; wider embeddings are searched exactly."""

_ADVISORY_LOCK: Final = 0x61736B6261636B  # "askback"

_STEPS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """
        CREATE TABLE askback_knowledge.collections (
          id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
          name           text COLLATE "C" NOT NULL UNIQUE,
          encoder        text NOT NULL,
          dimensions     integer NOT NULL,
          document_count bigint NOT NULL DEFAULT 0,
          leaf_count     bigint NOT NULL DEFAULT 0,
          term_total     bigint NOT NULL DEFAULT 0
        )
        """,
        """
        CREATE TABLE askback_knowledge.documents (
          id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
          collection_id bigint NOT NULL REFERENCES askback_knowledge.collections ON DELETE CASCADE,
          filename      text COLLATE "C" NOT NULL,
          size_bytes    bigint NOT NULL,
          page_count    integer NOT NULL,
          leaf_count    integer NOT NULL,
          sha256        text NOT NULL,
          recipe        text NOT NULL,
          ingest_time   timestamptz NOT NULL DEFAULT now(),
          UNIQUE (collection_id, filename)
        )
        """,
        """
        CREATE TABLE askback_knowledge.chunks (
          document_id   bigint NOT NULL REFERENCES askback_knowledge.documents ON DELETE CASCADE,
          level         smallint NOT NULL,
          ordinal       integer NOT NULL,
          parent        integer,
          collection_id bigint NOT NULL,
          page_number   text NOT NULL,
          heading_path  text NOT NULL,
          body          text NOT NULL,
          dimensions    integer,
          embedding     vector,
          terms         tsvector,
          term_count    integer,
          PRIMARY KEY (document_id, level, ordinal)
        )
        """,
        "CREATE INDEX chunks_leaves ON askback_knowledge.chunks (collection_id) WHERE level = 3",
        "CREATE INDEX chunks_terms ON askback_knowledge.chunks USING gin (terms) WHERE level = 3",
        """
        CREATE TABLE askback_knowledge.term_frequencies (
          collection_id bigint NOT NULL REFERENCES askback_knowledge.collections ON DELETE CASCADE,
          term          text COLLATE "C" NOT NULL,
          leaf_count    bigint NOT NULL,
          PRIMARY KEY (collection_id, term)
        )
        """,
    ),
)


async def migrate(engine: AsyncEngine, *, dimensions: int) -> None:
    """Brings the tables up to date and makes the vector index for this width, once however many start at once.

    Raises IndexUnusable where the server has no pgvector, or a newer version's tables.
    """
    async with engine.begin() as connection:
        await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        await _ensure_extension(connection)
        await connection.execute(text("CREATE SCHEMA IF NOT EXISTS askback_knowledge"))
        await connection.execute(
            text("CREATE TABLE IF NOT EXISTS askback_knowledge.schema_steps (step integer PRIMARY KEY)")
        )
        done = (await connection.execute(text("SELECT max(step) FROM askback_knowledge.schema_steps"))).scalar() or 0
        if done > len(_STEPS):
            raise IndexUnusable(f"the knowledge tables are of a newer version ({done}) than this one ({len(_STEPS)})")
        for number, statements in enumerate(_STEPS[done:], start=done + 1):
            for statement in statements:
                await connection.execute(text(statement))
            await connection.execute(
                text("INSERT INTO askback_knowledge.schema_steps VALUES (:step)"), {"step": number}
            )
        if dimensions <= MAX_INDEXED_DIMENSIONS:
            await connection.execute(text(_vector_index(dimensions)))


async def _ensure_extension(connection: AsyncConnection) -> None:
    found = await connection.execute(text("SELECT 1 FROM pg_extension WHERE extname = 'vector'"))
    if found.scalar():
        return
    try:
        await connection.execute(text("CREATE EXTENSION vector"))
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        raise IndexUnusable(
            "the knowledge database has no pgvector: install it there and CREATE EXTENSION vector"
        ) from error


def _vector_index(dimensions: int) -> str:
    # An index on a column without a width of its own: each width that is in use has its own partial index.
    return f"""
        CREATE INDEX IF NOT EXISTS chunks_embedding_{dimensions:d} ON askback_knowledge.chunks
        USING hnsw ((embedding::vector({dimensions:d})) vector_cosine_ops)
        WHERE level = 3 AND dimensions = {dimensions:d}
    """
