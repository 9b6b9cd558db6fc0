"""When a worker is ready."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from allocator.errors import DatabaseRefused, DatabaseUnavailable, SchemaOutOfDate, UnknownTag
from allocator.service.metric_updates import unready_reason

AWAY, DENIED, MISSING = DatabaseUnavailable("late"), DatabaseRefused("no right"), SchemaOutOfDate("no tables")


def source(held: int, rate: float = 10.0, trouble: Exception | None = None, given: int = 1) -> Any:
    return SimpleNamespace(given=given, rate=rate, buffer=SimpleNamespace(count=lambda: held, trouble=lambda: trouble))


def token_cache(failure: Exception | None = None, loaded: bool = True) -> Any:
    return SimpleNamespace(failure=failure, loaded=loaded)


def test_ids_in_memory_make_a_worker_ready_while_the_database_is_away():
    for sources, known, trouble in [
        ([], token_cache(), None),
        ([source(31, trouble=AWAY)], token_cache(), None),
        ([source(30, trouble=AWAY)], token_cache(), "the ids of a tag last less than 3 seconds"),
        ([source(0, trouble=DENIED)], token_cache(), "less than 3 seconds: the database refuses the service"),
        ([], token_cache(MISSING), "no ids are in memory: tables are missing"),
        ([source(0, trouble=AWAY, given=0)], token_cache(), None),
        ([source(0, trouble=UnknownTag("order"))], token_cache(), None),
        ([source(31)], token_cache(AWAY), None),
        ([source(30)], token_cache(AWAY), "no ids are in memory"),
        ([source(31)], token_cache(AWAY, loaded=False), "the tokens cannot be read: the database is unavailable"),
        ([], token_cache(AWAY), "no ids are in memory"),
    ]:
        found = unready_reason(sources, known)

        assert found is None if trouble is None else trouble in str(found), (sources, known)
