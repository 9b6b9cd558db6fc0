"""Rates of the last minutes, from totals that are read once a second."""

from __future__ import annotations

import asyncio
from math import inf

from allocator.service.console import live_rates as module
from allocator.service.console.live_rates import LiveRates
from allocator.service.metrics import Figures


def test_a_worker_among_others_reads_while_somebody_looks(monkeypatch):
    read = []

    async def run() -> None:
        rates = LiveRates(Figures(), is_alone=False)
        monkeypatch.setattr(rates, "_read", lambda: read.append(1))
        assert not rates._is_wanted()
        await rates.watch()
        await rates.watch()
        assert rates._is_wanted()
        monkeypatch.setattr(module, "monotonic", lambda: inf)
        assert not rates._is_wanted()

    asyncio.run(run())

    assert read == [1]
    assert LiveRates(Figures(), is_alone=True)._is_wanted()


def test_a_reading_that_fails_stops_none_that_follow(monkeypatch):
    """The system may have no thread to spare, and the file of a worker that starts may not be whole yet."""
    read: list[int] = []

    async def no_thread(work: object) -> None:
        monkeypatch.undo()
        raise RuntimeError("can't start new thread")

    def fail() -> None:
        read.append(len(read))
        if len(read) == 1:
            raise ValueError("not whole")

    async def run() -> None:
        rates = LiveRates(Figures(), is_alone=False)
        rates._read = fail  # type: ignore[method-assign]
        monkeypatch.setattr(asyncio, "to_thread", no_thread)
        await rates.watch()
        running = asyncio.create_task(rates.run())
        while len(read) < 2 and not running.done():
            await asyncio.sleep(0.01)
        assert not running.done()
        running.cancel()

    asyncio.run(run())

    assert read == [0, 1]
