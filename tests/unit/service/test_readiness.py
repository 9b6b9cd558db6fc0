"""When a worker is ready."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from allocator.errors import DatabaseUnavailable, UnknownTag
from allocator.service.auth import STARTING
from allocator.service.metric_updates import trouble_of

AWAY = DatabaseUnavailable("it does not answer")


def source(held: int, rate: float = 10.0, trouble: Exception | None = None, given: int = 1) -> Any:
    return SimpleNamespace(given=given, rate=rate, buffer=SimpleNamespace(count=lambda: held, trouble=lambda: trouble))


def book(failure: Exception | None = None, loaded: bool = True) -> Any:
    return SimpleNamespace(failure=failure, loaded=loaded)


def test_ids_in_memory_make_a_worker_ready_while_the_database_is_away():
    for sources, known, trouble in [
        ([], book(), None),
        ([source(31, trouble=AWAY)], book(), None),
        ([source(30, trouble=AWAY)], book(), "the ids of a tag last less than 3 seconds"),
        ([source(0, trouble=AWAY, given=0)], book(), None),
        ([source(0, trouble=UnknownTag("order"))], book(), None),
        ([source(31)], book(AWAY), None),
        ([source(30)], book(AWAY), "no ids are in memory"),
        ([source(31)], book(AWAY, loaded=False), "no ids are in memory"),
        ([], book(AWAY), "no ids are in memory"),
        ([], book(STARTING, loaded=False), "has not asked its database yet"),
    ]:
        found = trouble_of(sources, known)

        assert found is None if trouble is None else trouble in str(found), (sources, known)
