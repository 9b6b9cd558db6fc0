"""Claim the segments of several tags in one batch, when their claims arrive together.

A free thread takes all waiting claims. So a single claim starts at once, and claims that gather while the threads are
busy become one batch. A tag that the batch did not get, as when its row is locked, joins another batch, and is claimed
alone in the end. Otherwise many processes that start together would wait for each other's rows one by one.

A batch runs with the context variables of the first caller that waits for it.
"""

from __future__ import annotations

from collections import deque

from allocator.errors import DatabaseRefused, DatabaseUnavailable
from allocator.generators.backend_protocol import Backend
from allocator.generators.sequence import Sequence
from allocator.generators.supply import Request
from allocator.runtime.thread_pool import Background

MAX_BATCH = 200
"""The most tags in a batch: its transaction locks all their rows."""

TRIES = 2
"""A batch skips locked rows. After two more batches a tag is claimed alone, which waits for the lock."""

STRIKES = 3
"""After 3 batches in a row that failed although single claims work, stop batching: an old or merely compatible server
may not support the statement."""


Waiting = tuple[Sequence, Request]


class Batching:
    """The batches of an allocator: collects the claims of all its tags."""

    def __init__(self, backend: Backend, background: Background) -> None:
        self._background = background
        self.change(backend)

    def change(self, backend: Backend) -> None:
        self.backend = backend
        self.renew()

    def renew(self) -> None:
        """Drop the waiting claims in a forked child: they belong to the parent."""
        self._waiting: deque[Waiting] = deque()
        self._strikes = 0

    def add(self, sequence: Sequence, request: Request) -> None:
        # Before the submit: the thread may run at once.
        self._waiting.append((sequence, request))
        self._background.submit(self._run)

    def _run(self) -> None:
        batch = self._take()
        if len(batch) > 1:
            self._claim_together(batch)
        elif batch:
            sequence, request = batch[0]
            sequence._run(request)

    def _take(self) -> list[Waiting]:
        batch: list[Waiting] = []
        try:
            # Without a lock: several threads may take at once, and `popleft` gives each claim to one of them.
            while len(batch) < (MAX_BATCH if self._strikes < STRIKES else 1):
                batch.append(self._waiting.popleft())
        except IndexError:
            return batch
        if self._waiting:
            self._background.submit(self._run)
        return batch

    def _claim_together(self, batch: list[Waiting]) -> None:
        by_tag = {sequence.tag: (sequence, request) for sequence, request in batch}
        requests = [request for _, request in batch]
        context = next((one.context for one in requests if not one.in_advance), requests[0].context)
        try:
            segments = context.run(self._claim, by_tag)
        except Exception:
            self._claim_one_first(*batch)
            return
        except BaseException as error:
            for sequence, request in batch:
                sequence._fail(request, error)
            raise
        self._strikes = 0
        for tag, segment in segments.items():
            sequence, request = by_tag[tag]
            sequence._succeed(request, segment)
        for sequence, request in batch:
            if sequence.tag in segments and by_tag[sequence.tag][1] is request:
                continue
            if segments and request.skipped < TRIES:
                request.skipped += 1
                self.add(sequence, request)
            else:
                self._background.submit(sequence._run, request)

    def _claim(self, by_tag: dict[str, Waiting]) -> dict[str, range]:
        unopened = [sequence for sequence, _ in by_tag.values() if not sequence._opened]
        if unopened:
            create = unopened[0]._terms.create_missing
            for tag in self.backend.open_segments([sequence._template for sequence in unopened], create):
                by_tag[tag.name][0]._configure(tag)
        claims = {
            tag: sequence._resized(request.claim) for tag, (sequence, request) in by_tag.items() if sequence._opened
        }
        return self.backend.claim_segments(claims) if len(claims) > 1 else {}

    def _claim_one_first(self, first: Waiting, *rest: Waiting) -> None:
        """After a failed batch, claim one tag alone, to tell whether the database is at fault or the batch."""
        sequence, request = first
        sequence._run(request)
        error = request.ended.result(0) if request.ended.done() else None
        if isinstance(error, DatabaseUnavailable | DatabaseRefused):
            for sequence, request in rest:
                sequence._fail(request, error.again())
            return
        self._strikes += 1
        for sequence, request in rest:
            self._background.submit(sequence._run, request)
