"""The loops that keep the metrics."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from allocator import DatabaseUnavailable
from allocator.service.readiness import Watch

AWAY = DatabaseUnavailable("it does not answer")


def test_the_event_loop_does_not_wait_for_a_database():
    """To find the lead of a fleet opens its databases, one after another."""
    asked: list[int] = []

    def lead() -> Any:
        asked.append(threading.get_ident())
        raise AWAY

    service: Any = SimpleNamespace(ids=SimpleNamespace(databases=SimpleNamespace(lead=lead)))
    book: Any = None
    figures: Any = None
    with pytest.raises(DatabaseUnavailable):
        asyncio.run(Watch(service, book, figures).look_at_keys())

    assert asked
    assert threading.get_ident() not in asked
