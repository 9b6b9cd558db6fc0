"""Rates of the last minutes, from totals that are read once a second."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from math import inf

import pytest

from allocator.service.console import live_rates as module
from allocator.service.console.live_rates import (
    ALL,
    MAX_PAUSE,
    TAG_SECONDS,
    History,
    LiveRates,
    Sample,
    Totals,
    totals_of,
)
from allocator.service.console.rows import Figure
from allocator.service.metrics import OTHERS, Figures


def totals(refill: dict[str, float] | None = None, **ids: int) -> Totals:
    return Totals({ALL: sum(ids.values()), **ids}, dict.fromkeys(ids, 50), dict.fromkeys(ids, 9.0), refill or {})


def grown(*ids: int) -> History:
    """A tag that had given so many ids, second by second from 100 on."""
    history = History()
    for second, total in enumerate(ids, 100):
        history.add(totals(order=total), second)
    return history


def test_the_rate_is_that_between_two_readings():
    history = History()
    history.add(totals(order=100, line=0), 500)
    history.add(totals({"order": 0.25}, order=130, line=8), 502)

    assert history.samples("order") == [Sample(502, 15.0, 0.25)]
    assert history.samples("line") == [Sample(502, 4.0, 0.0)]
    assert history.samples(ALL) == [Sample(502, 19.0, 0.25)]
    assert history.rate() == 19.0
    assert history.figures()["order"] == Figure(15.0, 50, 9.0, 0.25)


def test_a_refill_belongs_to_the_second_in_which_it_is_new():
    history = History()
    for second, refill in enumerate((0.5, 0.5, 0.25, 0.25), 100):
        history.add(totals({"order": refill}, order=second), second)

    assert [one.refill for one in history.samples("order")] == [0.0, 0.25, 0.0]
    assert history.figures()["order"].refill == 0.25


def test_the_current_rate_is_a_mean_of_five_seconds():
    assert grown(0, 100, 100, 100, 100, 100, 110).rate("order") == 2.0
    assert grown(0, 4, 10).rate("order") == 5.0
    assert grown(7).rate("order") == 0.0


def test_a_tag_that_is_drawn_no_more_is_forgotten_in_time():
    history = grown(0, 5, *[5] * (TAG_SECONDS - 1))
    assert any(one.rate for one in history.samples("order"))
    assert len(history.samples("order")) == TAG_SECONDS
    assert "order" not in grown(0, 5, *[5] * TAG_SECONDS)._series


def test_after_a_pause_the_history_starts_again():
    for second in [103 + MAX_PAUSE, 50]:
        history = grown(0, 1, 2)
        history.add(totals(order=9), second)
        assert history.samples("order") == [], second
        history.add(totals(order=11), second + 1)

        assert history.samples("order") == [Sample(second + 1, 2.0, 0.0)], second


def test_totals_are_of_tags_and_of_every_kind():
    metrics = Figures()
    metrics.count("segment", "order", 5)
    metrics.count("block", "order", 10)
    metrics.count("ticket", "order", 100)
    metrics.count("meteor", "", 1000)
    metrics.ids.labels("segment", OTHERS).inc(10_000)
    metrics.in_memory.labels("order").set(7)
    metrics.in_memory.labels(OTHERS).set(8)
    metrics.lasting.labels("order").set(inf)
    metrics.claimed("segment", "ok", 0.5, ["order"])

    assert totals_of(metrics.collect()) == ({ALL: 11115, "order": 15}, {"order": 7}, {"order": inf}, {"order": 0.5})


WORKER = """
import sys
from allocator.service.metrics import Figures
metrics = Figures()
metrics.count("segment", "order", int(sys.argv[1]))
metrics.in_memory.labels("order").set(50)
metrics.claimed("segment", "ok", float(sys.argv[2]), ["order"])
"""


def test_the_totals_of_all_workers_are_added_up(tmp_path, monkeypatch):
    for given, seconds in ((5, 0.5), (10, 0.25)):
        command = [sys.executable, "-c", WORKER, str(given), str(seconds)]
        subprocess.run(command, check=True, env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)})
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr("allocator.service.metrics.is_alive", lambda process: True)
    found = totals_of(Figures().collect())

    assert (found.ids["order"], found.held["order"], found.refill["order"]) == (15, 100, 0.25)
    monkeypatch.setattr("allocator.service.metrics.is_alive", lambda process: False)
    gone = totals_of(Figures().collect())
    assert (gone.ids["order"], gone.held) == (15, {})


# -- reading


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

    with pytest.MonkeyPatch.context() as clock:
        clock.setattr(module, "time", lambda: 0.49)  # it reads in the middle of each second
        asyncio.run(run())

    assert read == [0, 1]
