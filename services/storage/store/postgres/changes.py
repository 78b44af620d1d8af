"""The counters that tell whether a user's list of sessions is still what it was.

A user has sixteen, by session, so that one busy user's sessions do not queue behind one row. Each starts at
a random number: the sum of those of a user deleted and made anew never repeats an old one.
"""

import zlib

CHANGED = """
    INSERT INTO user_changes AS c (user_id, bucket, revision)
    VALUES (:user_id, :bucket, CAST(floor(random() * 281474976710656) AS bigint))
    ON CONFLICT (user_id, bucket) DO UPDATE SET revision = c.revision + 1"""
"""Part of every transaction whose effect shows in a list, and of its last statement alone.

The row is held until COMMIT: what came after it would make a user's other sessions wait. In a WITH that
nothing refers to it is carried out after the statement that it stands in, but before the rows that cascade
from that.
"""

SESSION_CHANGED = """
    INSERT INTO user_changes AS c (user_id, bucket, revision)
    SELECT s.user_id, CAST(:bucket AS smallint), CAST(floor(random() * 281474976710656) AS bigint)
    FROM the_session AS s
    ON CONFLICT (user_id, bucket) DO UPDATE SET revision = c.revision + 1"""
"""The same, of a WITH that changes `the_session`, where that has changed one."""

BUCKETS_CHANGED = """
    INSERT INTO user_changes AS c (user_id, bucket, revision)
    SELECT :user_id, b.bucket, CAST(floor(random() * 281474976710656) AS bigint)
    FROM unnest(CAST(:buckets AS smallint[])) AS b (bucket)
    ORDER BY b.bucket
    ON CONFLICT (user_id, bucket) DO UPDATE SET revision = c.revision + 1"""
"""The same, for several sessions at once; in order, so that two of them do not wait for each other."""

_BUCKETS = 16


def bucket(session_id: str) -> int:
    return zlib.crc32(session_id.encode()) % _BUCKETS
