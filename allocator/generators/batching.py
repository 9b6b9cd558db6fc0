"""Refills of several tags of one process that come at one moment are claimed together.

Whoever is free takes all that wait. So one refill alone goes at once, and when the threads are busy, or many tags reach
low water together, what has gathered meanwhile becomes one claim. What that does not bring, as when its row is locked,
is gathered again, and claimed alone in the end: many processes that start at one moment would otherwise wait for each
other's rows one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from allocator.errors import DatabaseRefused, DatabaseUnavailable
from allocator.generators.backend_protocol import Backend
from allocator.generators.segment_supply import Refill
from allocator.runtime.worker_pool import Background

MOST = 200
"""So many tags are claimed together at most: while that takes place, nobody else can claim of them."""

TRIES = 2
"""How often a tag that was left out is gathered again."""

STRIKES = 3
"""After so many claims in a row that failed only because they were of several tags, each is claimed alone: an older
server, or one that is merely like it, does not know the words."""


class Refills:
    """Of all tags of an allocator."""

    def __init__(self, backend: Backend, background: Background) -> None:
        self._backend = backend
        self._background = background
        self.renew()

    def renew(self) -> None:
        """In a forked child: what waits is the parent's."""
        self._waiting: deque[Refill] = deque()
        self._strikes = 0

    def ask(self, refill: Refill) -> None:
        self._waiting.append(refill)
        self._background.submit(self._run)

    def _run(self) -> None:
        refills = self._take()
        if len(refills) > 1:
            self._together(refills)
        elif refills:
            refills[0].alone()

    def _take(self) -> list[Refill]:
        taken: list[Refill] = []
        try:
            while len(taken) < (MOST if self._strikes < STRIKES else 1):
                taken.append(self._waiting.popleft())
        except IndexError:
            return taken
        if self._waiting:
            self._background.submit(self._run)
        return taken

    def _claimed(self, of: Mapping[str, Refill]) -> dict[str, range]:
        unopened = [refill.supply for refill in of.values() if not refill.supply.opened]
        if unopened:
            create = unopened[0].may_create
            for tag in self._backend.open_segments([supply.template for supply in unopened], create):
                of[tag.name].supply.opened_as(tag)
        claims = {tag: refill.sized() for tag, refill in of.items() if refill.supply.opened}
        return self._backend.claim_segments(claims) if len(claims) > 1 else {}

    def _together(self, refills: Sequence[Refill]) -> None:
        of = {refill.supply.tag: refill for refill in refills}
        try:
            found = self._claimed(of)
        except Exception:
            self._one_first(*refills)
            return
        except BaseException as error:
            for refill in refills:
                refill.failed(error)
            raise
        self._strikes = 0
        rest = [refill for refill in refills if of[refill.supply.tag] is not refill or refill.supply.tag not in found]
        for tag, segment in found.items():
            of[tag].brought(segment)
        for refill in rest:
            if found and refill.left_out < TRIES:
                self.ask(refill._replace(left_out=refill.left_out + 1))
            else:
                self._background.submit(refill.alone)

    def _one_first(self, first: Refill, *rest: Refill) -> None:
        """They could not be claimed together: one that is claimed alone shows whether the database is at fault."""
        first.alone()
        error = first.ended.result(0) if first.ended.done() else None
        if isinstance(error, DatabaseUnavailable | DatabaseRefused):
            for refill in rest:
                refill.failed(error.again())
            return
        self._strikes += 1
        for refill in rest:
            self._background.submit(refill.alone)
