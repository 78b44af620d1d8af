"""The queue of a session's runs, and the indexes that upkeep finds its work by."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Upkeep asks for whoever's time has come, so its indexes begin with a time and not with the user; none is
# unique, and each shard has its own. Each holds only what upkeep waits for.
_CHANGES = """
ALTER TABLE runs
    ADD COLUMN queue_place      bigint NOT NULL DEFAULT 0,
    ADD COLUMN queue_asked_time timestamptz,
    ADD COLUMN request_key      bytea,
    ADD COLUMN request_hash     bytea;
CREATE UNIQUE INDEX runs_queued ON runs (user_id, session_id, queue_place) WHERE status = 1;
CREATE UNIQUE INDEX runs_queued_by_request ON runs (user_id, request_key) WHERE status = 1;
CREATE INDEX runs_queued_by_asked_time ON runs (queue_asked_time) WHERE status = 1;
CREATE INDEX runs_by_lease ON runs (lease_expire_time) WHERE status = 2;
CREATE INDEX runs_by_finish ON runs (finish_time) WHERE finish_time IS NOT NULL;
CREATE INDEX hitl_tasks_by_expiry ON hitl_tasks (expire_time) WHERE state = 1;
CREATE INDEX requests_by_time ON requests (create_time);
CREATE INDEX sessions_by_expiry ON sessions (expire_time) WHERE expire_time IS NOT NULL;
CREATE INDEX sessions_by_age ON sessions (update_time) WHERE expire_time IS NULL;
"""


def upgrade() -> None:
    for statement in _CHANGES.split(";\n"):
        if statement.strip():
            op.execute(statement)
