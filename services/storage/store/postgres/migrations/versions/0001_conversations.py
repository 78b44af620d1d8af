"""Sessions with their messages, runs and questions; the records of requests; the change counters."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Ids collate as "C": their order is that of their bytes on every platform, and no upgrade of a locale library
# can break an index.
_TABLES = """
CREATE TABLE sessions (
    user_id                  text COLLATE "C" NOT NULL,
    session_id               text COLLATE "C" NOT NULL,
    uid                      text COLLATE "C" NOT NULL,
    title                    text NOT NULL DEFAULT '',
    note                     text NOT NULL DEFAULT '',
    note_through_position    bigint NOT NULL DEFAULT 0,
    metadata                 jsonb NOT NULL DEFAULT '{}',
    revision                 bigint NOT NULL DEFAULT 0,
    message_count            bigint NOT NULL DEFAULT 0,
    create_time              timestamptz NOT NULL,
    update_time              timestamptz NOT NULL,
    expire_time              timestamptz,
    active_run_id            text COLLATE "C" NOT NULL DEFAULT '',
    pending_hitl_task_id     text COLLATE "C" NOT NULL DEFAULT '',
    pending_hitl_expire_time timestamptz,
    fencing_counter          bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, session_id),
    CHECK ((pending_hitl_task_id = '') = (pending_hitl_expire_time IS NULL))
);
CREATE INDEX sessions_by_update ON sessions (user_id, update_time DESC, session_id);

CREATE TABLE messages (
    user_id     text COLLATE "C" NOT NULL,
    session_id  text COLLATE "C" NOT NULL,
    position    bigint NOT NULL CHECK (position > 0),
    message_id  text COLLATE "C" NOT NULL,
    type        smallint NOT NULL,
    status      smallint NOT NULL,
    content     text NOT NULL,
    create_time timestamptz NOT NULL,
    run_id      text COLLATE "C" NOT NULL DEFAULT '',
    trace       bytea,
    extra_json  text NOT NULL DEFAULT '',
    PRIMARY KEY (user_id, session_id, position),
    UNIQUE (user_id, session_id, message_id),
    FOREIGN KEY (user_id, session_id) REFERENCES sessions ON DELETE CASCADE
);

CREATE TABLE runs (
    user_id           text COLLATE "C" NOT NULL,
    run_id            text COLLATE "C" NOT NULL,
    session_id        text COLLATE "C" NOT NULL,
    request_id        text COLLATE "C" NOT NULL,
    holder_id         text COLLATE "C" NOT NULL,
    status            smallint NOT NULL,
    fencing_token     bigint NOT NULL,
    lease             interval NOT NULL,
    lease_expire_time timestamptz NOT NULL,
    cancel_requested  boolean NOT NULL DEFAULT false,
    answered_task_id  text COLLATE "C" NOT NULL DEFAULT '',
    opened_task_id    text COLLATE "C" NOT NULL DEFAULT '',
    human_position    bigint NOT NULL,
    human_message_id  text COLLATE "C" NOT NULL,
    ai_position       bigint NOT NULL DEFAULT 0,
    ai_message_id     text COLLATE "C" NOT NULL DEFAULT '',
    error_code        integer,
    error_reason      text,
    error_message     text,
    input_tokens      bigint,
    output_tokens     bigint,
    model_calls       integer,
    create_time       timestamptz NOT NULL,
    finish_time       timestamptz,
    session_revision  bigint NOT NULL DEFAULT 0,
    finish_hash       bytea,
    PRIMARY KEY (user_id, run_id),
    FOREIGN KEY (user_id, session_id) REFERENCES sessions ON DELETE CASCADE
);
CREATE INDEX runs_by_session ON runs (user_id, session_id, create_time DESC, run_id);

CREATE TABLE hitl_tasks (
    user_id            text COLLATE "C" NOT NULL,
    task_id            text COLLATE "C" NOT NULL,
    session_id         text COLLATE "C" NOT NULL,
    run_id             text COLLATE "C" NOT NULL,
    original_question  text NOT NULL,
    prompt             text NOT NULL,
    options            text[] NOT NULL,
    kind               smallint NOT NULL,
    answers            text[] NOT NULL,
    resume_state       bytea NOT NULL,
    state              smallint NOT NULL,
    create_time        timestamptz NOT NULL,
    expire_time        timestamptz NOT NULL,
    resolve_time       timestamptz,
    answer             text NOT NULL DEFAULT '',
    answered_by_run_id text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (user_id, task_id),
    FOREIGN KEY (user_id, session_id) REFERENCES sessions ON DELETE CASCADE
);
CREATE INDEX hitl_tasks_by_time ON hitl_tasks (user_id, create_time, task_id);
CREATE INDEX hitl_tasks_by_state ON hitl_tasks (user_id, state, create_time, task_id);
CREATE INDEX hitl_tasks_by_session ON hitl_tasks (user_id, session_id, create_time, task_id);

-- No foreign key: a record outlives its session, without a word of it (session_id and result are NULL then).
CREATE TABLE requests (
    user_id      text COLLATE "C" NOT NULL,
    request_key  bytea NOT NULL,
    request_hash bytea NOT NULL,
    session_id   text COLLATE "C",
    result       jsonb,
    create_time  timestamptz NOT NULL,
    PRIMARY KEY (user_id, request_key)
);
CREATE INDEX requests_by_session ON requests (user_id, session_id) WHERE session_id IS NOT NULL;

CREATE TABLE user_changes (
    user_id  text COLLATE "C" NOT NULL,
    bucket   smallint NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (user_id, bucket)
);

CREATE TABLE hash_keys (
    purpose text PRIMARY KEY,
    key     bytea NOT NULL
);
"""


def upgrade() -> None:
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)

    # A PostgreSQL may have been built without lz4; traces are read far more often than written.
    connection = op.get_bind()
    methods = connection.execute(sa.text("SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'"))
    if "lz4" in (methods.scalar() or ()):
        op.execute("ALTER TABLE messages ALTER COLUMN trace SET COMPRESSION lz4")

    connection.execute(
        sa.text("INSERT INTO hash_keys (purpose, key) VALUES ('request_id', :key)"), {"key": secrets.token_bytes(32)}
    )
