"""`examine`: find what could repeat ids or stop them, in databases and their configuration. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from allocator.database.store import Database
from allocator.doctor.examination import examine_database, of_fleet
from allocator.schemes.shared.findings import DANGER, NOTE, OUTAGE, Finding, Severity, at, in_order, is_healthy
from allocator.schemes.slots import check_list

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

    One = str | URL | Engine

__all__ = ["DANGER", "NOTE", "OUTAGE", "Finding", "Severity", "examine", "is_healthy"]


def examine(
    database: One | Sequence[One],
    *,
    timeout: float = 5.0,
    clock: Callable[[], float] = time.time,
) -> list[Finding]:
    """Examine a database, or all slots of a fleet. Returns the findings, the worst first.

    database: a URL, an engine, or several of these. Opens new connections and closes them.
    timeout: seconds for each query. A failed query yields a note.
    clock: this machine's clock, in seconds since 1970.

    Raises `InvalidDatabase` for anything else.
    """
    # Not isinstance(): SQLAlchemy's URL is a tuple too.
    given: Any = database if type(database) in {list, tuple} else [database]
    databases = [Database(url, timeout) for url in given]
    check_list([(one.shown, one.address.word) for one in databases])
    try:
        done = [examine_database(one, clock) for one in databases]
    finally:
        for one in databases:
            one.close()
    return in_order([*(finding for one in done for finding in at(one.where, one.findings)), *of_fleet(done)])
