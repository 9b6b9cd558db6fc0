"""The supply of ids of one kind in this process: runs the pure core of a scheme, for the blocking and the asyncio API.

The fast path is `next(_values)`: one C call, no lock. When the iterator is empty, `_advance` decides under a lock, and
returns the next id or what to wait for without the lock.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from allocator.errors import (
    AllocatorClosed,
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    LeaseLost,
    Uncopyable,
)
from allocator.generators.backend_protocol import Backend
from allocator.runtime import forks
from allocator.runtime.forks import exhaust
from allocator.runtime.iterators import iterator, take
from allocator.runtime.thread_pool import Background, Work, check_entry
from allocator.runtime.waiting import Waits, wait_for, wait_for_async
from allocator.schemes.shared.retry_pace import RETRY_PAUSE, Pace, Wait

log = logging.getLogger("allocator")

Ended = Work[AllocatorError | None]
"""A request, which ends with its error or None. A waiting caller then tries again."""

LOST_AFTER = 12
"""Give a request up after 12 times the timeout, so that a hung driver does not stop a tag; its ids are burnt."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings of an allocator; durations in seconds."""

    create_missing: bool
    runway: float
    timeout: float


def unexpected(cause: BaseException) -> AllocatorError:
    """The error for an exception that is no `AllocatorError`. Only after Ctrl-C and the like may a call be retried."""
    kind = DatabaseRefused if isinstance(cause, Exception) else DatabaseUnavailable
    error = kind(f"a claim failed with {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error


class Supply(Uncopyable):
    """Serves ids of one kind. Safe to use from several threads and from asyncio at the same time.

    A subclass provides the pure core, which decides what to claim and is informed of the outcome, and `_work`, which
    carries out the claim. It holds a reference to `owner`, whose at-fork hook resets this supply.
    """

    __slots__ = (
        "_backend",
        "_background",
        "_core",
        "_failing",
        "_forked_unseen",
        "_lock",
        "_owner",
        "_serves",
        "_terms",
        "_under_way",
        "_values",
    )

    _core: Any
    _values: Iterator[int]
    _under_way: Ended

    def __init__(self, backend: Backend, background: Background, terms: Terms, owner: object = None) -> None:
        self._backend = backend
        self._background = background
        self._terms = terms
        self._owner = owner
        self._values = iter(())
        self._serves = self._forked_unseen = False
        self._serve(())
        self._reset()

    def _reset(self) -> None:
        self._core = self._new_core()
        self._lock = threading.RLock()
        self._failing = False
        self._under_way = self._background.idle

    def _serve(self, values: Iterable[int]) -> int | None:
        """Return the first of `values` to the caller, and serve the rest to all threads."""
        exhaust(self._values)
        served = iterator(values)
        first = next(served, None)
        self._values = served
        self._serves = first is not None
        return first

    @abstractmethod
    def _new_core(self) -> Any: ...

    @abstractmethod
    def _name(self) -> str:
        """The beginning of messages."""

    def _at_hand(self, now: float) -> int | None:
        """The next id of `_values`, without the lock; None if there is none, or if it may not be used any more."""
        return next(self._values, None)

    def at_hand(self) -> int | None:
        """The next id in memory, without waiting; None without one, as for a snowflake in this millisecond."""
        return self._at_hand(monotonic())

    async def several(self, count: int, end: float | None = None) -> list[int]:
        """The next ids, for asyncio; all until `end`, or within one timeout."""
        return await wait_for_async(self._completed([], count, end))

    def trouble(self) -> AllocatorError | None:
        """The error of the last claim; None if it succeeded."""
        pace: Pace[Any] = self._core.pace
        with self._lock:
            return pace.trouble(monotonic())

    def _several_at_hand(self, count: int, now: float) -> Iterable[int]:
        """Up to `count` ids as `_at_hand`."""
        return take(self._values, count)

    @abstractmethod
    def _more(self, now: float) -> int | None:
        """Under the lock: serve the next ids in memory once nothing is at hand, and return the first; None without.

        Raises an error if no more ids will ever come.
        """

    def _want(self, now: float, missing: int) -> Any:
        """Under the lock: a claim to make, a `Wait`, or None. `missing`: how many ids the caller still needs."""
        return self._core.want(now)

    @abstractmethod
    def _work(self, claim: Any) -> Any:
        """Without the lock: carry out a claim."""

    @abstractmethod
    def _granted(self, claim: Any, result: Any, now: float) -> None:
        """Under the lock: the claim was committed."""

    def _refused(self, claim: Any, error: AllocatorError, now: float) -> None:
        """Under the lock: the claim failed, or its outcome is unknown."""
        self._core.failed(claim, error, now)

    def _advance(self, missing: int = 1) -> int | Ended | Wait:
        """The next id, or what to wait for before the next attempt. A signal handler may raise in here."""
        self._check_entry()
        try:
            with self._lock:
                step = self._decide(monotonic(), missing)
            if not self._under_way.is_queued:  # without the lock: if no thread can start, the claim is made in here
                self._background.start(self._under_way)
        except AllocatorError:
            raise
        except BaseException:
            # Perhaps before the claim was queued, and then nobody would end it. If it is made, its ids are burnt.
            self._core.pace.withdraw()
            self._under_way.end()
            self._under_way = self._background.idle
            raise
        return step

    def _check_entry(self) -> None:
        forks.catch_up()
        check_entry(self._lock, self._name())

    def _decide(self, now: float, missing: int) -> int | Ended | Wait:
        """Under the lock: what `_advance` returns. A claim that begins here is under way, and queued after the lock."""
        self._check_usable()
        value = self._at_hand(now)  # another thread may have refilled meanwhile
        if value is None:
            value = self._more(now)
        want = self._want(now, missing)
        if want is not None and not isinstance(want, Wait):
            is_in_advance = value is not None  # no caller waits for it
            self._under_way = Work(self._carry_out, want, is_in_advance)
        if value is not None:
            return value
        return self._pause(want, now) or self._under_way

    def _check_usable(self) -> None:
        if self._background.closed.done():
            raise AllocatorClosed
        if self._forked_unseen:
            raise forks.forked_unseen(self._name())
        if self._core.pace.under_way is not None and self._under_way.done():
            self._core.pace.withdraw()  # an exception that was sent to its thread came before the end

    def _pause(self, want: Any, now: float) -> Wait | None:
        """Under the lock: how long to wait if only time helps. Raises the error of a claim that no retry mends."""
        if not isinstance(want, Wait):
            return None
        if want.error is not None and not isinstance(want.error, DatabaseUnavailable):
            raise want.error.again()
        return want

    def _carry_out(self, claim: Any, is_in_advance: bool) -> AllocatorError | None:
        """On a thread of the pool: make a claim. Returns its error, for the callers that wait."""
        try:
            self._end(claim, self._granted, self._work(claim), is_in_advance)
        except BaseException as cause:
            error = cause if isinstance(cause, AllocatorError) else unexpected(cause)
            self._end(claim, self._refused, error, is_in_advance)
            if not isinstance(cause, Exception):
                raise  # it hit this thread, which is the caller's if no other can start
            return error
        return None

    def _end(self, claim: Any, tell: Callable[[Any, Any, float], None], outcome: Any, is_in_advance: bool) -> None:
        """Tell the core how a claim ended. Logs the first failure of a series if no caller waits."""
        with self._lock:
            is_given_up = claim is not self._core.pace.under_way  # or its backend was changed
            tell(claim, outcome, monotonic())
            if is_given_up:
                return
            self._under_way = self._background.idle  # most tags are idle
        error = outcome if isinstance(outcome, AllocatorError) else None
        with suppress(Exception):  # a failing logging filter of the user must not block the claim
            self._log(error, is_in_advance)
        self._failing = error is not None and (is_in_advance or self._failing)

    def _log(self, error: AllocatorError | None, in_advance: bool) -> None:
        if error is None and self._failing:
            log.warning("%s: the database answers again", self._name())
        elif isinstance(error, LeaseLost):
            log.warning("%s: its worker cannot be used any more; leasing another: %s", self._name(), error)
        elif error is not None and in_advance and not (self._failing or self._background.closed.done()):
            log.warning("%s: a claim failed; ids come from memory while they last: %s", self._name(), error)

    def _next(self) -> int:
        """The next id, once `_values` is used up: from memory, or within the timeout from the database."""
        return wait_for(self._attempts())

    def _completed(self, ids: list[int], count: int, end: float | None = None) -> Waits[list[int]]:
        """Fill `ids` up to `count`; all until `end`, or within one timeout."""
        end = monotonic() + self._terms.timeout if end is None else end
        while len(ids) < count:
            ids.append((yield from self._attempts(count - len(ids), end)))
            ids += self._several_at_hand(count - len(ids), monotonic())
        return ids

    def _attempts(self, missing: int = 1, end: float | None = None) -> Waits[int]:
        """Wait for the next id, until `end` or for the timeout. `missing`: how many ids the call still needs."""
        end = monotonic() + self._terms.timeout if end is None else end
        while not isinstance(step := self._advance(missing), int):
            left = end - monotonic()
            if left <= 0:
                raise self._overdue(step, missing)
            if isinstance(step, Wait):
                yield self._background.closed, min(step.seconds, left)
                continue
            yield step, left
            # None too where the thread was hit by an exception, or the pool is closed: `_advance` then says more.
            error = step.result() if step.done() and step.error() is None else None
            if error is not None and not isinstance(error, DatabaseUnavailable | LeaseLost):
                raise error.again()  # else a retry within the deadline may succeed
        return step

    def _overdue(self, step: Ended | Wait | None = None, missing: int = 1) -> AllocatorError:
        """The error of a call that reached its timeout: that of the last failed request, if it is recent."""
        recent = self._terms.timeout + RETRY_PAUSE
        pace: Pace[Any] = self._core.pace
        with self._lock:
            error = step.error if isinstance(step, Wait) else pace.trouble(monotonic(), recent)
        if error is not None:
            return error.again()
        late = f"{self._name()}: the database did not answer within {self._terms.timeout:g} seconds; "
        short = f"{missing} ids are still missing; " if missing > 1 else ""
        return DatabaseUnavailable(f"{late}{short}it is away, or an open transaction locks what this call needs")

    def _retire(self) -> None:
        """Drop the ids and end waiting calls: the allocator is closed."""
        with self._lock:
            self._serve(())
            ended = self._under_way
        ended.end(AllocatorClosed())

    def _change(self, backend: Backend) -> None:
        """Switch to another backend, and drop the ids in memory."""
        with self._lock:
            self._backend = backend
            self._serve(())
            self._reset()

    def _forget(self) -> None:
        """Serve nothing in a forked child: the ids in memory belong to the parent."""
        self._forked_unseen = self._forked_unseen or (forks.unseen and self._serves)
        self._serve(())

    def _renew(self) -> None:
        """Reset in a forked child, after `_forget`."""
        self._reset()
