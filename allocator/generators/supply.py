"""The ids of one kind in this process: served from memory, and claimed in the background before they run out.

The way of an id, and of a claim, by the members of `Supply` in their order:

    _values       memory holds an id: one C call, no lock. Else:
    _attempts     until an id comes or the timeout: `_advance`, then wait for what it says, blocking or awaiting
    _decide       under the lock: serve the next ids from memory, and ask the core whether to claim
    _carry_out    on a thread of the pool, without the lock: claim
    _finish       under the lock: tell the core how it ended, after the commit; then those who wait look again

A pure core decides, of a tag `schemes/segment_refill.py`; a subclass makes it, and carries out its claims. This file
owns the lock, the clock and the threads.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, Protocol

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
from allocator.runtime.threads import Background, Waits, Work, wait_for_async
from allocator.schemes.shared.retry_pace import RETRY_PAUSE, Pace, Wait

log = logging.getLogger("allocator")

ClaimWork = Work[AllocatorError | None]
"""A claim, which ends with its error or None. A waiting caller then tries again."""

LOST_AFTER = 12
"""Give a claim up after 12 times the timeout, so that a hung driver does not stop a tag; its ids are burnt."""


@dataclass(slots=True)
class Terms:
    """What the supplies of an allocator share; durations in seconds.

    owner: the allocator, whose at-fork hook resets them; it lives as long as one of them.
    """

    backend: Backend
    background: Background
    create_missing: bool
    runway: float
    timeout: float
    owner: object = None

    @property
    def lost_after(self) -> float:
        return LOST_AFTER * self.timeout


class Core(Protocol):
    """What decides for a supply. Pure; callers hold a lock. `now` is the monotonic clock, in seconds."""

    pace: Pace[Any]
    stopped: AllocatorError | None
    """Why no more ids will ever come."""

    def take(self) -> Iterable[int] | Wait:
        """The next ids in memory, once those before are used up; none, or a `Wait` where time brings them."""

    def want(self, now: float, missing: int) -> Any:
        """A claim to make, a `Wait`, or None. `missing`: how many ids the caller still needs."""

    def committed(self, claim: Any, result: Any, now: float) -> None: ...

    def failed(self, claim: Any, error: AllocatorError, now: float) -> None:
        """The claim failed, or its outcome is unknown."""


def unexpected(cause: BaseException) -> AllocatorError:
    """The error for an exception that is no `AllocatorError`. Only after Ctrl-C and the like may a call be retried."""
    kind = DatabaseRefused if isinstance(cause, Exception) else DatabaseUnavailable
    error = kind(f"a claim failed with {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error


class Supply(Uncopyable):
    """Serves ids of one kind. Safe to use from several threads and from asyncio at the same time.

    end: `_values` may be used until then, on the monotonic clock.
    """

    __slots__ = ("_core", "_failing", "_forked_unseen", "_lock", "_serves", "_terms", "_under_way", "_values", "end")

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._values: Iterator[int] = iterator(())
        self.end = inf
        self._serves = self._forked_unseen = False
        self._reset()

    def _reset(self) -> None:
        self._core: Any = self._new_core()
        self._lock = threading.RLock()
        self._failing = False
        self._under_way: ClaimWork = self._terms.background.idle

    @property
    @abstractmethod
    def _name(self) -> str:
        """The beginning of messages."""

    @abstractmethod
    def _new_core(self) -> Core: ...

    @abstractmethod
    def _claim(self, claim: Any) -> Any:
        """Without the lock: carry out a claim of the core."""

    # ---- the way of an id

    def at_hand(self) -> int | None:
        """The next id in memory, without waiting; None without one, as for a snowflake in this millisecond."""
        return next(self._values, None) if monotonic() < self.end else None

    async def several(self, count: int, end: float | None = None) -> list[int]:
        """The next ids, for asyncio; all until `end`, or within one timeout."""
        return await wait_for_async(self._completed([], count, end))

    def _completed(self, ids: list[int], count: int, end: float | None = None) -> Waits[list[int]]:
        """Fill `ids` up to `count`; all until `end`, or within one timeout."""
        end = monotonic() + self._terms.timeout if end is None else end
        while len(ids) < count:
            ids.append((yield from self._attempts(count - len(ids), end)))
            ids += take(self._values, count - len(ids)) if monotonic() < self.end else ()
        return ids

    def _attempts(self, missing: int = 1, end: float | None = None) -> Waits[int]:
        """Wait for the next id, until `end` or for the timeout. `missing`: how many ids the call still needs."""
        end = monotonic() + self._terms.timeout if end is None else end
        while not isinstance(step := self._advance(missing), int):
            left = end - monotonic()
            if left <= 0:
                raise self._overdue(step, missing)
            if isinstance(step, Wait):
                yield self._terms.background.closed, min(step.seconds, left)
                continue
            yield step, left
            # None too where its thread was hit by an exception, or the pool is closed: `_advance` then says more.
            error = step.ended[0][0] if step.ended else None  # its result: see `ClaimWork`
            if error is not None and not isinstance(error, DatabaseUnavailable | LeaseLost):
                raise error.again()  # else a retry within the deadline may succeed
        return step

    def _advance(self, missing: int = 1) -> int | ClaimWork | Wait:
        """The next id, or what to wait for before the next attempt. A signal handler may raise in here."""
        forks.enter(self)
        try:
            with self._lock:
                step, work = self._decide(monotonic(), missing), self._under_way
            if not work.is_queued:  # without the lock: if no thread can start, the claim is made in here
                self._terms.background.start(work)
        except AllocatorError:
            raise
        except BaseException:
            # Perhaps before the claim was queued, and then nobody would end it. If it is made, its ids are burnt.
            self._core.pace.withdraw()
            self._under_way.end()
            self._under_way = self._terms.background.idle
            raise
        return step

    def _decide(self, now: float, missing: int) -> int | ClaimWork | Wait:
        """Under the lock: what `_advance` returns. A claim that begins here is under way, and queued after the lock."""
        self._check_usable()
        found = self._in_memory(now)
        want = self._core.want(now, missing)
        if want is not None and not isinstance(want, Wait):
            is_in_advance = isinstance(found, int)  # no caller waits for it
            self._under_way = Work(self._carry_out, want, is_in_advance)
        if found is not None:
            return found
        if not isinstance(want, Wait):
            return self._under_way
        if want.error is not None and not isinstance(want.error, DatabaseUnavailable):
            raise want.error.again()  # of a claim that no retry mends
        return want

    def _check_usable(self) -> None:
        if self._terms.background.closed.ended:
            raise AllocatorClosed
        if self._forked_unseen:
            raise forks.forked_unseen(self._name)
        if self._core.stopped:
            raise self._core.stopped.again()
        if self._core.pace.under_way is not None and self._under_way.ended:
            self._core.pace.withdraw()  # an exception that was sent to its thread came before the end

    def _in_memory(self, now: float) -> int | Wait | None:
        """Under the lock: the next id in memory, or the `Wait` of a core whose ids come with time; None without."""
        value = next(self._values, None) if now < self.end else None  # another thread may have refilled meanwhile
        if value is not None:
            return value
        core = self._core
        taken = core.take()
        if isinstance(taken, Wait):
            return taken
        first = self._serve(taken) if taken else None
        if self._core is not core:  # a signal handler has forked meanwhile: here they are the parent's
            first = self._serve(())
        return first

    def _serve(self, values: Iterable[int]) -> int | None:
        """Return the first of `values` to the caller, and serve the rest to all threads."""
        exhaust(self._values)
        served = iterator(values)
        first = next(served, None)
        self._values = served
        self._serves = first is not None
        return first

    # ---- the way of a claim

    def _carry_out(self, claim: Any, is_in_advance: bool) -> AllocatorError | None:
        """On a thread of the pool: make a claim. Returns its error, for the callers that wait."""
        try:
            outcome = self._claim(claim)
        except AllocatorError as error:
            outcome = error
        except BaseException as cause:
            outcome = unexpected(cause)
            if not isinstance(cause, Exception):  # it hit this thread, which is the caller's if no other can start
                self._finish(claim, outcome, is_in_advance)
                raise
        return self._finish(claim, outcome, is_in_advance)

    def _finish(self, claim: Any, outcome: Any, is_in_advance: bool) -> AllocatorError | None:
        """Tell the core how a claim ended, and return its error."""
        error = outcome if isinstance(outcome, AllocatorError) else None
        with self._lock:
            is_given_up = claim is not self._core.pace.under_way  # or its backend was changed
            if error is None:
                self._core.committed(claim, outcome, monotonic())
            else:
                self._core.failed(claim, error, monotonic())
            self._clear_if_stopped()
            if is_given_up:
                return error
            self._under_way = self._terms.background.idle  # most tags are idle
        if error is not None or self._failing:
            self._tell(error, is_in_advance)
        return error

    def _clear_if_stopped(self) -> None:
        if self._core.stopped:
            self._serve(())

    def _tell(self, error: AllocatorError | None, is_in_advance: bool) -> None:
        """Log the first failure of a series if no caller waits, and its end."""
        with suppress(Exception):  # a failing logging filter of the user must not block the claim
            if error is None:
                log.warning("%s: the database answers again", self._name)
            elif isinstance(error, LeaseLost):
                log.warning("%s: its worker cannot be used any more; leasing another: %s", self._name, error)
            elif is_in_advance and not (self._failing or self._terms.background.closed.ended):
                log.warning("%s: a claim failed; ids come from memory while they last: %s", self._name, error)
        self._failing = error is not None and (is_in_advance or self._failing)

    # ---- what ends it

    def trouble(self) -> AllocatorError | None:
        """The error of the last claim, if it failed within the last two seconds."""
        pace: Pace[Any] = self._core.pace
        with self._lock:
            return pace.trouble(monotonic())

    def _overdue(self, step: ClaimWork | Wait | None = None, missing: int = 1) -> AllocatorError:
        """The error of a call that reached its timeout: that of the last failed claim, if it is recent."""
        recent = self._terms.timeout + RETRY_PAUSE
        pace: Pace[Any] = self._core.pace
        with self._lock:
            error = step.error if isinstance(step, Wait) else pace.trouble(monotonic(), recent)
        if error is not None:
            return error.again()
        late = f"{self._name}: the database did not answer within {self._terms.timeout:g} seconds; "
        short = f"{missing} ids are still missing; " if missing > 1 else ""
        return DatabaseUnavailable(f"{late}{short}it is away, or an open transaction locks what this call needs")

    def _retire(self) -> None:
        """Drop the ids and end waiting calls: the allocator is closed."""
        with self._lock:
            self._serve(())
            ended = self._under_way
        ended.end(AllocatorClosed())

    def _drop(self) -> None:
        """Start with nothing in memory: the backend was changed."""
        with self._lock:
            self._serve(())
            self._reset()

    def _forget(self) -> None:
        """Serve nothing in a forked child: the ids in memory belong to the parent."""
        self._forked_unseen = self._forked_unseen or (forks.unseen and self._serves)
        self._serve(())

    def _after_fork(self) -> None:
        """Reset in a forked child, after `_forget`."""
        self._reset()
