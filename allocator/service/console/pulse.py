"""What this worker measures once a second, for the pages: rates and refills of its tags, and of all together.

A tag that is not drawn has no history; there are at most `MOST` histories, of a kilobyte and a half each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import inf

from allocator.service.console.history import Ring, Sample
from allocator.service.console.tag_table import Figure, lasting
from allocator.service.id_handlers import Ids

ALL = ""
"""The name of all ids together, which is no tag."""

TAG_SECONDS, ALL_SECONDS = 180, 900
MEAN = 5
"""Seconds over which the rate of the moment is taken."""
MOST = 10_000
STRIDE = 250
"""Tags that are measured in one go: a request waits for a millisecond at most."""


class Pulse:
    """Used by one event loop, but for `refilled`."""

    def __init__(self, service: Ids) -> None:
        self._service = service
        self._rings: dict[str, Ring] = {}
        self._all = Ring(ALL_SECONDS)
        self._totals: dict[str, int] = {}
        self._slowest: dict[str, float] = {}
        self._refills: dict[str, float] = {}
        self._at = -inf

    def refilled(self, tags: Collection[str], seconds: float) -> None:
        """A claim of these tags ended well. Called on the threads of the claims."""
        for tag in tags:
            self._refills[tag] = seconds
            self._slowest[tag] = max(seconds, self._slowest.get(tag, 0.0))

    def measure(self, now: float, clock: float) -> Iterator[None]:
        """What went since the last time: `now` is the monotonic clock, `clock` that of the wall.

        Run it to its end; between its steps others may have their turn.
        """
        is_first, passed, self._at = self._at == -inf, now - self._at, now
        slowest, self._slowest = self._slowest, {}
        second, everything = int(clock), 0.0
        for at, (name, total, has_history) in enumerate(self._given()):
            if at % STRIDE == STRIDE - 1:
                yield
            rate = (total - self._totals.get(name, 0)) / passed
            self._totals[name] = total
            everything += rate
            if has_history:
                self._keep(name, second, rate, slowest.get(name, 0.0))
        if not is_first:  # nothing is known of the time before
            self._all.put(second, everything, max(list(slowest.values()), default=0.0))

    def _given(self) -> Iterator[tuple[str, int, bool]]:
        """Whatever gives ids, how many it gave, and whether it is a tag."""
        service, blocks = self._service, self._service.sequences.blocks
        for draw in service.draws.all():
            yield draw.tag or f"/{draw.scheme}", draw.given + blocks.get(draw.tag, 0), bool(draw.tag)
        yield "/ticket", sum(service.tickets.values()), False

    def _keep(self, name: str, second: int, rate: float, refill: float) -> None:
        ring = self._rings.get(name)
        if ring is None and (rate or refill) and len(self._rings) < MOST:
            ring = self._rings[name] = Ring(TAG_SECONDS)
        if ring is not None:
            ring.put(second, rate, refill)
            if ring.is_idle:
                del self._rings[name]

    # -- asked by the pages

    def rate(self) -> float:
        return self._all.mean(MEAN)

    def samples(self, name: str) -> list[Sample]:
        ring = self._all if name == ALL else self._rings.get(name)
        return ring.samples() if ring else []

    def figures(self) -> Mapping[str, Figure]:
        """Of each tag that was drawn from here."""
        return {draw.tag: self._figure(draw.tag, draw.buffer.count()) for draw in self._service.draws.sequences()}

    def _figure(self, tag: str, held: int) -> Figure:
        ring = self._rings.get(tag)
        rate = ring.mean(MEAN) if ring else 0.0
        return Figure(rate, held, lasting(held, rate), self._refills.get(tag, 0.0))
