"""Claim the segments of several tags in one batch, when their claims arrive together.

Two statements are under way at once, as a rule. So a single claim starts at once, and claims that gather meanwhile
become one batch. A tag that the batch did not get, as when its row is locked, joins another batch after a pause, and
is claimed alone in the end. Otherwise many processes that start together would wait for each other's rows one by one.

A batch runs with the context variables of the first caller that waits for it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic

from allocator.errors import AllocatorClosed, DatabaseUnavailable
from allocator.generators.backend_protocol import Backend
from allocator.generators.sequence import Sequence
from allocator.generators.supply import Request
from allocator.runtime.thread_pool import Background

MAX_BATCH = 200
"""The most tags in a batch: its transaction locks all their rows."""

TURNS = 2
"""Statements under way at once, as a rule; what else is needed gathers until one of them ends."""
PATIENCE = 0.25
"""Seconds, at most a twentieth of the timeout, that the next statement waits for its turn before it goes without one:
those under way may wait for a lock. After that one the patience doubles, up to `LONGEST` times, until a turn comes in
time: more connections are no help to a database that is slow."""
LONGEST = 4

TRIES = 6
"""A batch skips locked rows. A tag that six batches skipped is claimed alone, which waits for the lock."""

STRIKES, REST = 3, 60.0
"""After 3 batches in a row that could not be made although single claims work, claim each tag alone for 60 seconds: an
old or merely compatible server may not support the statement."""


Waiting = tuple[Sequence, Request]


class Batching:
    """The batches of an allocator: collects the claims of all its tags."""

    def __init__(self, backend: Backend, background: Background, timeout: float) -> None:
        self._background = background
        self._patience = min(PATIENCE, timeout / 20)
        self.change(backend)

    def change(self, backend: Backend) -> None:
        self.backend = backend
        self.renew()

    def renew(self) -> None:
        """Drop the waiting claims in a forked child: they belong to the parent."""
        self._waiting: deque[Waiting] = deque()
        self._skipped: deque[Waiting] = deque()
        self._strikes, self._rests_until = 0, 0.0
        self._renew_turns()

    def _renew_turns(self) -> None:
        self._turns: SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(TURNS):
            self._turns.put(None)
        self._lost = 1
        self._is_awaited, self._is_paused = threading.Lock(), threading.Lock()

    def add(self, sequence: Sequence, request: Request) -> None:
        if not self.backend.has_batches or monotonic() < self._rests_until or not self._background.has_threads:
            # Without threads this may be a signal handler that has interrupted a claim.
            sequence._submit_alone(request)
            return
        # Before the submit: the thread may run at once.
        self._waiting.append((sequence, request))
        self._submit()

    def _submit(self) -> None:
        batch: list[Waiting] = []
        self._background.submit(self._run, batch).add_done_callback(partial(self._end_all_after, batch))

    def _end_all_after(self, batch: list[Waiting], work: Future[None]) -> None:
        """After an exception that hit a thread in here, end whatever may have waited for it."""
        error = work.exception()
        if error is None or isinstance(error, AllocatorClosed):  # `_retire` ends what a close dropped
            return
        self._renew_turns()  # it may have had one
        with suppress(IndexError):
            while left := self._waiting or self._skipped:
                batch.append(left.popleft())
        for sequence, request in batch:
            if not request.ended.done():
                sequence._fail(request, error)

    def _run(self, batch: list[Waiting]) -> None:
        """Claim what waits, once it is its turn. One thread waits for that, and the others leave their claims to it."""
        turns, is_awaited = self._turns, self._is_awaited
        if not (self._waiting and is_awaited.acquire(blocking=False)):
            return
        try:
            try:
                turns.get(timeout=self._patience * self._lost)
                self._lost = 1
            except Empty:
                self._lost = min(2 * self._lost, LONGEST)
            self._take(batch)
        finally:
            is_awaited.release()
        skipped: list[Waiting] = []
        began = monotonic()
        try:
            if self._waiting:
                self._submit()
            if len(batch) > 1:
                skipped = self._claim_together(batch)
            else:
                for sequence, request in batch:
                    sequence._run(request)
        finally:
            if turns.qsize() < TURNS:  # else one went without a turn, and all are back
                turns.put(None)
        if skipped:
            self._pause(skipped, monotonic() - began)

    def _take(self, batch: list[Waiting]) -> None:
        if self._background.closed.is_set():
            self._waiting.clear()
        with suppress(IndexError):
            while len(batch) < MAX_BATCH:
                batch.append(self._waiting.popleft())
                if batch[0][1].skipped >= TRIES:  # to be claimed alone
                    break

    def _pause(self, skipped: list[Waiting], took: float) -> None:
        """Let claims wait that a batch skipped, then try them again together. One thread at a time waits here."""
        is_paused = self._is_paused
        self._skipped.extend(skipped)
        while self._skipped and is_paused.acquire(blocking=False):
            try:
                tried = min(request.skipped for _, request in skipped)
                self._background.closed.wait(min(took * tried, self._patience))
                with suppress(IndexError):
                    while True:
                        self._waiting.append(self._skipped.popleft())
            finally:
                is_paused.release()
            self._submit()

    def _claim_together(self, batch: list[Waiting]) -> list[Waiting]:
        """Claim for several tags. Returns the claims to try again: rows that others have locked, as a rule."""
        by_tag = {sequence.tag: (sequence, request) for sequence, request in batch}
        requests = [request for _, request in batch]
        context = next((one.context for one in requests if not one.in_advance), requests[0].context)
        try:
            segments = context.run(self._claim, by_tag)
        except Exception:
            self._claim_one_first(*batch)
            return []
        if segments is None:  # no strike: the next batch may work, as after a failover
            self._claim_each(batch)
            return []
        self._strikes = 0
        for tag, segment in segments.items():
            sequence, request = by_tag[tag]
            sequence._succeed(request, segment)
        missing = [one for one in batch if not (one[0].tag in segments and by_tag[one[0].tag][1] is one[1])]
        return [one for one in missing if self._is_tried_again(*one)]

    def _is_tried_again(self, sequence: Sequence, request: Request) -> bool:
        """Whether a claim that a batch did not make joins another one. Else it is made alone."""
        request.skipped += 1
        if not sequence._opened:  # its row is missing
            sequence._submit_alone(request)
        elif request.skipped >= TRIES:
            self._waiting.appendleft((sequence, request))
            self._submit()
        return sequence._opened and request.skipped < TRIES

    def _claim(self, by_tag: dict[str, Waiting]) -> dict[str, range] | None:
        unopened = [sequence for sequence, _ in by_tag.values() if not sequence._opened]
        if unopened:
            create = unopened[0]._terms.create_missing
            for tag in self.backend.open_segments([sequence._template for sequence in unopened], create):
                by_tag[tag.name][0]._configure(tag)
        claims = {
            tag: sequence._resized(request.claim) for tag, (sequence, request) in by_tag.items() if sequence._opened
        }
        return self.backend.claim_segments(claims) if len(claims) > 1 else None

    def _claim_one_first(self, first: Waiting, *rest: Waiting) -> None:
        """After a failed batch, claim one tag alone: the database is at fault, or this tag, or the batch."""
        sequence, request = first
        sequence._run(request)
        error = request.ended.result(0) if request.ended.done() else None
        if isinstance(error, DatabaseUnavailable):
            for sequence, request in rest:
                sequence._fail(request, error.again())
            return
        if error is None:
            self._strikes += 1
            if self._strikes >= STRIKES:
                self._rests_until = monotonic() + REST
        self._claim_each(rest)

    def _claim_each(self, batch: Iterable[Waiting]) -> None:
        for sequence, request in batch:
            sequence._submit_alone(request)
