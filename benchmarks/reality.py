"""A small real fleet, compared with the model."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import click

from allocator import Allocator
from allocator.generators.backend_protocol import Backend
from allocator.service.metrics import observed

from .places import Place
from .world import Load, Times, World, popular

PROCESSES, TAGS, EACH = 6, 60, 6000.0
"""Processes, tags, and ids per second of each process."""
SECONDS = 40
TICK = 0.01
WAIT = 0.0005
"""A call of at least this many seconds has waited for the database."""


@dataclass
class Counts:
    claims: int = 0
    statements: int = 0
    waits: int = 0
    ids: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


class CountedAllocator(Allocator):
    def __init__(self, url: str, counts: Counts) -> None:
        self._counts = counts
        super().__init__(url, timeout=30)

    def _observed(self, backend: Backend) -> Backend:
        return observed(backend, self._note)

    def _note(self, what: str, outcome: str, seconds: float, tags: Collection[str]) -> None:
        with self._counts.lock:
            self._counts.claims += len(tags)
            self._counts.statements += bool(tags)


@dataclass
class Compared:
    """Claims, statements and waits, real and modelled."""

    real: dict[str, int]
    model: dict[str, int]

    def rows(self) -> list[list[str]]:
        names = list(self.real)
        ratio = [f"{self.model[name] / self.real[name]:.2f}" if self.real[name] else "-" for name in names]
        return [
            ["", *names],
            ["real", *(f"{self.real[name]:,}" for name in names)],
            ["model", *(f"{self.model[name]:,}" for name in names)],
            ["model to real", *ratio],
        ]


def drawing(ids: Allocator, tags: Sequence[str], rates: Sequence[float], counts: Counts, stop: threading.Event) -> None:
    """Draw each tag at its rate, one burst per tick."""
    next_ids = [ids.sequence(tag).next_id for tag in tags]
    owed = [1.0] * len(tags)
    began, done, waits, drawn = time.perf_counter(), 0.0, 0, 0
    while not stop.is_set():
        passed = time.perf_counter() - began
        for at, rate in enumerate(rates):
            owed[at] += rate * (passed - done)
            next_id = next_ids[at]
            for _ in range(int(owed[at])):
                before = time.perf_counter()
                next_id()
                waits += time.perf_counter() - before > WAIT
            drawn += int(owed[at])
            owed[at] %= 1.0
        done = passed
        stop.wait(TICK)
    with counts.lock:
        counts.waits += waits
        counts.ids += drawn


def run(place: Place, rates: Sequence[float]) -> Counts:
    counts, stop = Counts(), threading.Event()
    tags = [place.tag(f"real{at}") for at in range(len(rates))]
    with ExitStack() as stack:
        several = [stack.enter_context(CountedAllocator(place.url, counts)) for _ in range(PROCESSES)]
        threads = [threading.Thread(target=drawing, args=(ids, tags, rates, counts, stop)) for ids in several]
        for thread in threads:
            thread.start()
        with click.progressbar(range(SECONDS), label="drawing", file=sys.stderr) as bar:
            for _ in bar:
                time.sleep(1)
        stop.set()
        for thread in threads:
            thread.join()
    return counts


def compared(place: Place, times: Times) -> Compared:
    rates = popular(TAGS, EACH)
    counts = run(place, rates)
    world = World(PROCESSES, Load(rates, begin=0.01), times, SECONDS)
    world.run(float(SECONDS))
    seen = world.seen
    return Compared(
        {"claims": counts.claims, "statements": counts.statements, "waits": counts.waits},
        {"claims": sum(seen.claims), "statements": sum(seen.statements), "waits": len(seen.waits)},
    )
