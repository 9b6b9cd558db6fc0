"""Claim the segments of several tags in one batch, when their claims arrive together.

Two statements may be under way at once. So a single claim starts at once, and claims that gather meanwhile become one
batch. A tag that the batch did not get, as when its row is locked, joins another batch after a pause, and is claimed
alone in the end. Otherwise many processes that start together would wait for each other's rows one by one.

A batch runs with the context variables of the first caller that waits for it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic

from allocator.errors import DatabaseRefused, DatabaseUnavailable
from allocator.generators.backend_protocol import Backend
from allocator.generators.sequence import Sequence
from allocator.generators.supply import Request
from allocator.runtime.thread_pool import Background

MAX_BATCH = 200
"""The most tags in a batch: its transaction locks all their rows."""

TURNS = 2
"""Statements under way at once; others gather until one of them ends."""
OUT_OF_TURN = 0.5
"""Seconds after which a claim no longer waits for its turn: those under way may wait for locks or for the network."""

TRIES = 4
"""A batch skips locked rows. After four more batches a tag is claimed alone, which waits for the lock."""
MAX_PAUSE = 0.5
"""Seconds before a skipped row is tried again. The first pause is as long as the batch took, the next one double."""

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
        self._skipped: deque[Waiting] = deque()
        # No semaphore: a signal handler may interrupt any of this, and claim here if no thread can start.
        self._turns: SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(TURNS):
            self._turns.put(None)
        self._is_awaited, self._is_paused = threading.Lock(), threading.Lock()
        self._strikes = 0

    def add(self, sequence: Sequence, request: Request) -> None:
        # Before the submit: the thread may run at once.
        self._waiting.append((sequence, request))
        self._background.submit(self._run)

    def _run(self) -> None:
        """Claim what waits, once it is its turn. One thread waits for that, and the others leave their claims to it."""
        turns, is_awaited = self._turns, self._is_awaited
        if not (self._waiting and is_awaited.acquire(blocking=False)):
            return
        turn: list[None] = []
        try:
            with suppress(Empty):
                turn.append(turns.get(timeout=OUT_OF_TURN))
            batch = self._take()
        finally:
            is_awaited.release()
        skipped: list[Waiting] = []
        began = monotonic()
        try:
            if self._waiting:
                self._background.submit(self._run)
            if len(batch) > 1:
                skipped = self._claim_together(batch)
            else:
                for sequence, request in batch:
                    sequence._run(request)
        finally:
            for one in turn:
                turns.put(one)
        if skipped:
            self._pause(skipped, monotonic() - began)

    def _take(self) -> list[Waiting]:
        # Without a lock: a signal handler may take at the same time, and `popleft` gives each claim to one of them.
        batch: list[Waiting] = []
        with suppress(IndexError):
            while len(batch) < (MAX_BATCH if self._strikes < STRIKES else 1):
                batch.append(self._waiting.popleft())
        return batch

    def _pause(self, skipped: list[Waiting], took: float) -> None:
        """Let claims wait that a batch skipped, then try them again together. One thread at a time waits here."""
        is_paused = self._is_paused
        self._skipped.extend(skipped)
        while self._skipped and is_paused.acquire(blocking=False):
            try:
                tried = min(request.skipped for _, request in skipped)
                self._background.closed.wait(min(took * 2 ** (tried - 1), MAX_PAUSE))
                with suppress(IndexError):
                    while True:
                        self._waiting.append(self._skipped.popleft())
            finally:
                is_paused.release()
            self._background.submit(self._run)

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
        except BaseException as error:
            for sequence, request in batch:
                sequence._fail(request, error)
            raise
        self._strikes = 0
        for tag, segment in segments.items():
            sequence, request = by_tag[tag]
            sequence._succeed(request, segment)
        skipped = []
        for sequence, request in batch:
            if sequence.tag in segments and by_tag[sequence.tag][1] is request:
                continue
            if sequence._opened and request.skipped < TRIES:
                request.skipped += 1
                skipped.append((sequence, request))
            else:
                self._background.submit(sequence._run, request)
        return skipped

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
