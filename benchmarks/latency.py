"""Latency of a call at a steady rate, with the next segment claimed in advance and on demand.

Segments stay at 1000 ids, so the rate needs 80 of them per second: this measures claims, not growth. A burst is drawn
every millisecond, like requests. The process sleeps between bursts.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from allocator import Allocator
from allocator.schemes.segment_refill import Claim, Segments
from allocator.schemes.shared.retry_pace import Wait

from .places import Place
from .rounds import Measure, Race

RATE = 80_000
BURSTS = 1000
"""Bursts per second."""
SEGMENT = 1000
PERCENTILES = (50, 99, 99.9, 99.99)


class WhenNeeded(Segments):
    """The rules without claims in advance."""

    __slots__ = ()

    def want(self, now: float, missing: int = 0) -> Claim | Wait | None:
        return None if self._left or self._piece_is_served() else super().want(now, missing)

    def _piece_is_served(self) -> bool:
        return self._piece > 0


class Paced:
    """Draws ids for a while and records the latency of each call, in microseconds."""

    def __init__(self, ids: Allocator, tag: str, seconds: float) -> None:
        self.next_id = ids.sequence(tag).next_id
        self.seconds = seconds
        self.taken = array("d")

    def __call__(self) -> float:
        """The p99.9 of this run."""
        next_id, clock = self.next_id, time.perf_counter
        taken = array("d")
        gc.collect()
        gc.disable()
        try:
            began = clock()
            for burst in range(int(self.seconds * BURSTS)):
                time.sleep(max(0.0, began + burst / BURSTS - clock()))
                for _ in range(RATE // BURSTS):
                    before = clock()
                    next_id()
                    taken.append(clock() - before)
        finally:
            gc.enable()
        self.taken.extend(taken)
        return percentile(sorted(taken), 99.9) * 1e6


def percentile(ordered: Sequence[float], at: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * at / 100))]


def percentiles(taken: Iterable[float], unit: float = 1.0) -> dict[str, float]:
    ordered = sorted(taken)
    return {f"p{at:g}": percentile(ordered, at) * unit for at in PERCENTILES}


@contextmanager
def races(place: Place, seconds: float) -> Iterator[tuple[Race, dict[str, Paced]]]:
    with ExitStack() as stack:
        found: dict[str, Paced] = {}
        for name in ("when needed", "in advance"):
            ids = stack.enter_context(Allocator(place.url, step=SEGMENT, max_step=SEGMENT, timeout=30))
            tag = place.tag(name.replace(" ", "-"))
            ids.next_id(tag)
            if name == "when needed":
                refrain(ids, tag)
            found[name] = Paced(ids, tag, seconds)
        candidates: dict[str, Measure] = dict(found)
        yield Race(f"latency, {place.name}", "us, p99.9", candidates), found


def refrain(ids: Allocator, tag: str) -> None:
    """Claim only on demand from now on."""
    supply = ids.sequence(tag)
    with supply._lock:
        core = WhenNeeded(supply._core.runway)
        core.configure(SEGMENT, SEGMENT)
        core.seen = supply._core.seen
        supply._core = core
