"""What servers tell of their locks."""

from __future__ import annotations

from sqlalchemy import Connection, text

SEEN_EACH = 0.2
"""Seconds. MariaDB answers from a copy, which it makes anew only after a tenth of a second without a question."""


def waits(kind: str, watcher: Connection) -> bool:
    """Whether some session waits for a lock, as the server says."""
    question = {
        "postgres": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND datname = current_database()",
        "mysql": "SELECT count(*) FROM performance_schema.data_lock_waits",
        "mariadb": "SELECT count(*) FROM information_schema.innodb_lock_waits",
    }[kind]
    found = watcher.scalar(text(question))
    watcher.rollback()
    return bool(found)
