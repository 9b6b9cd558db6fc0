"""One tag's ids in this process: the pure core, driven. Shared by both faces.

The fast path is `_draw`, the bound `__next__` of the range that is being served: one C call, no lock. Everything
else happens at its end: `_advance` decides under a lock and returns what to do without it.
"""

from __future__ import annotations

import logging
import sysconfig
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from allocator.background import Background
from allocator.errors import (
    AllocatorClosed,
    AllocatorError,
    DatabaseUnavailable,
    Exhausted,
    MaxValueWentBack,
    Uncopyable,
    UnknownTag,
)
from allocator.schemes.limits import check_reserve
from allocator.schemes.segment import NOTHING, Claim, Segments, Wait
from allocator.schemes.tag import Tag

log = logging.getLogger("allocator")

Draw = Callable[[], int]
Ended = Future[AllocatorError | None]
"""Done when a claim has ended, with the error if it failed; asking again is the waiter's business."""

LOST_AFTER = 12
"""A claim that has not ended after so many times the timeout never will: its thread is gone."""

WITHOUT_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


class Source(Protocol):
    """Where segments come from. Each call may be run again at any time; what it claimed is burnt then."""

    def open_segment(self, template: Tag, create: bool) -> Tag: ...

    def claim_segment(self, name: str, size: int, seen: int, *, exact: bool = False) -> range: ...


@dataclass(frozen=True, slots=True)
class Terms:
    """How an allocator serves its tags; durations in seconds."""

    create_missing: bool
    runway: float
    timeout: float


class LockedIterator:
    """An iterator for builds without the GIL, where `next` on a range may give one value twice."""

    __slots__ = ("_iterator", "_lock")

    def __init__(self, values: range) -> None:
        self._iterator = iter(values)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        with self._lock:
            return next(self._iterator)


def iterator(values: range, locked: bool = WITHOUT_GIL) -> Iterator[int]:
    return LockedIterator(values) if locked else iter(values)


class Supply(Uncopyable):
    """Serves one tag. Safe to use from several threads and from asyncio at the same time."""

    __slots__ = (
        "_background",
        "_core",
        "_draw",
        "_draws",
        "_failing",
        "_lock",
        "_opened",
        "_source",
        "_template",
        "_terms",
        "_under_way",
        "_values",
        "tag",
    )

    _draw: Draw
    _values: Iterator[int]

    def __init__(
        self, template: Tag, source: Source, background: Background, terms: Terms, draws: dict[str, Draw]
    ) -> None:
        self.tag = template.name
        self._terms = terms
        self._template = template
        self._source = source
        self._background = background
        self._draws = draws
        self._start(seen=0)

    def _start(self, seen: int) -> None:
        self._lock = threading.Lock()
        self._core = Segments(self._terms.runway, LOST_AFTER * self._terms.timeout)
        self._core.seen = seen
        self._opened = self._failing = False
        self._under_way: Ended = Future()
        self._serve(NOTHING)

    def _serve(self, piece: range) -> int | None:
        """Let everybody draw from `piece`, but its first id, which is the caller's."""
        values = iterator(piece)
        first = next(values, None)
        self._values = values
        self._draw = self._draws[self.tag] = values.__next__
        return first

    # -- deciding, under the lock

    def _advance(self) -> int | Ended | Wait:
        """The next id, or what to wait for before asking again."""
        with self._lock:
            answer, claim = self._decide(monotonic())
            ended = self._under_way
        if claim is not None:
            self._background.submit(self._run, claim, ended)
        return answer

    def _decide(self, now: float) -> tuple[int | Ended | Wait, Claim | None]:
        if self._background.closed.is_set():
            raise AllocatorClosed
        found = self._next_in_memory()
        want = self._core.want(now)
        claim = want if isinstance(want, Claim) else None
        if claim is not None:
            self._under_way = Future()
        if found is not None:
            return found, claim
        if self._core.stopped:
            raise self._core.stopped.again()
        if isinstance(want, Wait):
            if not isinstance(want.error, DatabaseUnavailable):
                raise want.error.again()
            return want, None
        return self._under_way, claim

    def _next_in_memory(self) -> int | None:
        try:
            return self._draw()  # another thread may have brought a piece meanwhile
        except StopIteration:
            piece = self._core.take()
            return self._serve(piece) if piece else None

    # -- doing, without the lock

    def _run(self, claim: Claim, ended: Ended) -> None:
        error: AllocatorError | None = None
        try:
            if self._open():
                with self._lock:
                    claim = self._core.resized(claim)
            segment = self._source.claim_segment(self.tag, claim.size, claim.seen)
            with self._lock:
                self._core.committed(claim, segment, monotonic())
                error = self._stopped_by_going_back()
        except Exception as found:
            error = self._failed(claim, found)
        self._tell(error)
        if not ended.done():
            ended.set_result(error)

    def _open(self) -> bool:
        """Once: read the tag's settings, and make its row if that may be."""
        if self._opened:
            return False
        tag = self._source.open_segment(self._template, self._terms.create_missing)
        with self._lock:
            self._core.configure(tag.step, tag.max_step)
        self._opened = True
        return True

    def _failed(self, claim: Claim, found: Exception) -> AllocatorError:
        error = found if isinstance(found, AllocatorError) else unforeseen(found)
        with self._lock:
            self._core.failed(claim, error, monotonic())
            if isinstance(error, UnknownTag):
                self._opened = False
            return self._stopped_by_going_back() or error

    def _stopped_by_going_back(self) -> AllocatorError | None:
        """What is in memory may be claimed by another process now, so it is not served any more."""
        if not isinstance(self._core.stopped, MaxValueWentBack):
            return None
        self._serve(NOTHING)
        return self._core.stopped

    def _tell(self, error: AllocatorError | None) -> None:
        """Log the first failure of a row: nobody may be waiting for this claim."""
        if error is not None and not self._failing and not isinstance(error, UnknownTag):
            log.warning("tag %s: a claim failed, ids go on from memory while they last: %s", self.tag, error)
        elif error is None and self._failing:
            log.warning("tag %s: claims succeed again", self.tag)
        self._failing = error is not None and not isinstance(error, UnknownTag)

    def _reserve_now(self, count: int) -> range:
        """Claim one contiguous block, in the calling thread."""
        self._open()
        with self._lock:
            if self._core.stopped:
                raise self._core.stopped.again()
            seen = self._core.seen
        try:
            block = self._source.claim_segment(self.tag, count, seen, exact=True)
        except (Exhausted, MaxValueWentBack) as error:
            with self._lock:
                self._core.stop(error)
                self._stopped_by_going_back()
            raise
        with self._lock:
            self._core.saw(block)
        return block

    def _start_reserve(self, count: int) -> Future[range]:
        check_reserve(count)
        return self._background.submit(self._reserve_now, count)

    # -- waiting and ending

    def _raise_unless_passing(self, error: AllocatorError | None) -> None:
        """After a claim ended: its error concerns whoever waited, but an outage that may pass within the deadline."""
        if error is not None and not isinstance(error, DatabaseUnavailable):
            raise error.again()

    def _overdue(self, step: Ended | Wait | None = None) -> AllocatorError:
        """The error for a caller whose time is over."""
        if isinstance(step, Wait):
            return step.error.again()
        return DatabaseUnavailable(
            f"tag {self.tag!r}: the database did not answer within {self._terms.timeout:g} seconds"
        )

    def _retire(self) -> None:
        with self._lock:
            self._serve(NOTHING)
            ended = self._under_way
        if not ended.done():
            ended.set_result(AllocatorClosed())

    def _renew(self) -> None:
        """In a forked child: what is in memory is the parent's; only the watermark is still true."""
        self._start(self._core.seen)


def unforeseen(error: Exception) -> DatabaseUnavailable:
    """Something that is no database error, as from an event hook of the user's engine."""
    failure = DatabaseUnavailable(f"a claim failed with {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
