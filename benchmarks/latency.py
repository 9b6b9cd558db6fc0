"""Latency of a call at a steady rate, with the next segment claimed in advance and on demand.

Segments stay at 1000 ids, so the rate needs 80 of them per second: this measures claims, not growth. A burst is drawn
every millisecond, like requests. The process sleeps between bursts.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from allocator import Allocator

from .claims import SIZE, Blocks, native_blocks
from .places import Place
from .rounds import Figure, Measure, Race

RATE = 80_000
BURSTS = 1000
"""Bursts per second."""
SECONDS = 1.0
"""Seconds of a sample."""
RIVAL = "blocks of a native sequence"
FIGURES = (
    Figure("p99.9 with the claim in advance, to without", "in advance", "when needed", "≤ 0.1"),
    Figure("p99.9 with the claim in advance, to blocks of 1000 of a native sequence", "in advance", RIVAL, ""),
)


class Paced:
    """Draws ids for a while and records the latency of each call."""

    def __init__(self, next_id: Callable[[], int]) -> None:
        self.next_id = next_id
        self.taken = array("d")

    def __call__(self) -> float:
        """The p99.9 of this sample, in microseconds."""
        next_id, clock = self.next_id, time.perf_counter
        taken = array("d")
        gc.collect()
        gc.disable()
        try:
            began = clock()
            for burst in range(int(SECONDS * BURSTS)):
                time.sleep(max(0.0, began + burst / BURSTS - clock()))
                for _ in range(RATE // BURSTS):
                    before = clock()
                    next_id()
                    taken.append(clock() - before)
        finally:
            gc.enable()
        self.taken.extend(taken)
        return sorted(taken)[int(len(taken) * 0.999)] * 1e6


@contextmanager
def races(place: Place) -> Iterator[list[Race]]:
    with ExitStack() as stack:
        ids = stack.enter_context(Allocator(place.url, step=SIZE, max_step=SIZE, timeout=30))
        needed = Blocks(lambda: ids.reserve(place.tag("needed"), SIZE))
        paced = {"when needed": Paced(needed.next_id), "in advance": Paced(ids.sequence(place.tag("advance")).next_id)}
        if blocks := native_blocks(place, stack):
            paced[RIVAL] = Paced(blocks.next_id)
        for one in paced.values():
            one.next_id()
        candidates: dict[str, Measure] = dict(paced)
        taken = {name: one.taken for name, one in paced.items()}
        yield [Race("latency", "us, p99.9", candidates, FIGURES, place.name, taken=taken)]
