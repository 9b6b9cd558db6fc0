"""An allocator that nobody draws from holds nothing: a process may have one for each of many tenants."""

from __future__ import annotations

import threading

import pytest
from support.processes.patience import until

from allocator import Allocator


@pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"], indirect=True)
def test_many_allocators_hold_no_connection_and_no_thread_for_long(fresh, monkeypatch):
    monkeypatch.setattr("allocator.runtime.thread_pool.IDLE", 0.2)
    before = {*threading.enumerate()}
    tenants = [Allocator(fresh) for _ in range(4)]
    for _ in range(2):
        for tenant in tenants:
            tenant.reserve("order", 1)
            tenant.ticket("job")
        engines = [tenant._backend.databases()[0].engine for tenant in tenants]
        assert until(lambda engines=engines: not any(engine.pool.checkedin() for engine in engines), 60)
        assert until(lambda: not ({*threading.enumerate()} - before), 60)
    for tenant in tenants:
        tenant.close()
