"""Ids in this process, of whatever scheme: a pure core, driven. Shared by both faces.

The fast path is `next(_values)`, of what is being served: one C call, no lock. Everything else happens at its end:
`_advance` decides under a lock and returns what to do without it.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
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
from allocator.runtime.iterators import exhaust, iterator
from allocator.runtime.reentrancy import check_entry, forked_unseen, reentrant_call
from allocator.runtime.waiting import pause, result_of
from allocator.runtime.worker_pool import Background
from allocator.schemes.retry import RETRY_PAUSE, Pace, Wait

log = logging.getLogger("allocator")

Ended = Future[AllocatorError | None]
"""Done when a request has ended, with the error if it failed. Whoever waits for it asks again."""

LOST_AFTER = 12
"""A request that has not ended after so many times the timeout is given up; its result is burnt."""

WAIT_SLICE = 1.0
"""Seconds after which a waiting call looks round: a signal may come just before it waits, and is seen after it."""

NOT_LOOKED = object()


@dataclass(frozen=True, slots=True)
class Terms:
    """How an allocator serves; durations in seconds."""

    create_missing: bool
    runway: float
    timeout: float


@dataclass(slots=True, eq=False)
class Request:
    """What a supply claims from the database. `in_advance`: nobody waits for it, since ids are left in memory."""

    claim: Any
    ended: Ended
    in_advance: bool
    left_out: int = 0
    """How often a batch was claimed without it."""


def unforeseen(found: BaseException) -> AllocatorError:
    """Ctrl-C passes, and the next call may try again; anything else is a defect, and trying again is no remedy."""
    kind = DatabaseRefused if isinstance(found, Exception) else DatabaseUnavailable
    error = kind(f"a claim ended with {type(found).__name__}: {found}")
    error.__cause__ = found
    return error


class Supply(Uncopyable):
    """Serves ids of one kind. Safe to use from several threads and from asyncio at the same time.

    A subclass says what its pure core is: that decides what to claim, `_work` claims it, and the core is told how that
    went. `owner` is kept alive, since its at-fork hook renews this.
    """

    __slots__ = (
        "_asking",
        "_backend",
        "_background",
        "_core",
        "_failing",
        "_lock",
        "_owner",
        "_serves",
        "_spoilt",
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
        self._serves = self._spoilt = False
        self._core = self._new_core()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._failing = False
        self._asking = 0
        self._under_way = self._background.idle
        self._serve(())

    def _serve(self, values: Iterable[int]) -> int | None:
        """Let everybody draw from `values`, but the first of them, which is the caller's."""
        exhaust(self._values)
        served = iterator(values)
        first = next(served, None)
        self._values = served
        self._serves = first is not None
        return first

    # -- what a scheme says

    @abstractmethod
    def _new_core(self) -> Any: ...

    @property
    def _pace(self) -> Pace[Any]:
        pace: Pace[Any] = self._core.pace
        return pace

    @abstractmethod
    def _name(self) -> str:
        """For messages."""

    @abstractmethod
    def _more(self, now: float) -> int | None:
        """Under the lock: the next id in memory, after what is being served was used up."""

    def _want(self, now: float) -> Any:
        """Under the lock: a claim to make, a `Wait`, or None."""
        return self._core.want(now)

    def _passing(self, now: float) -> Wait | None:
        """Under the lock: for how long to wait, where nothing but time is needed."""
        return None

    def _stopped(self) -> AllocatorError | None:
        """Under the lock: why there will be no more ids, ever."""
        return None

    @abstractmethod
    def _work(self, claim: Any) -> Any:
        """Without the lock: carry out a claim."""

    @abstractmethod
    def _granted(self, claim: Any, result: Any, now: float) -> None:
        """Under the lock: the claim was committed."""

    def _refused(self, claim: Any, error: AllocatorError, now: float) -> None:
        """Under the lock: the claim failed, or nobody knows whether it did."""
        self._core.failed(claim, error, now)

    # -- deciding, under the lock

    def _advance(self) -> int | Ended | Wait:
        """The next id, or what to wait for before asking again; a signal handler may raise or fork in it."""
        self._check_entry()
        process, known, claim = self._background.closed, NOT_LOOKED, None
        try:
            with self._lock:
                known = self._pace.under_way
                answer, claim = self._decide(monotonic())
                ended = self._under_way
            if claim is not None:
                self._submit(Request(claim, ended, isinstance(answer, int)))
                self._asking = 0
        except BaseException:
            self._withdraw(claim, known)
            raise
        finally:
            if process is not self._background.closed:
                self._renew()  # a handler forked: what was decided is the parent's
        return answer if process is self._background.closed else self._advance()

    def _check_entry(self) -> None:
        forks.catch_up()
        check_entry(self._lock, self._name())

    def _withdraw(self, claim: Any, known: Any) -> None:
        """A call was interrupted after it had decided on a claim, which nobody else would ever end."""
        if claim is None and known is NOT_LOOKED:
            return
        with self._lock:
            begun = self._pace.under_way
            if claim is None and begun is not known:
                claim = begun
            if claim is None or not self._pace.withdraw(claim):
                return
            ended, self._asking = self._under_way, 0
            self._forget(ended)
        if not ended.done():
            ended.set_result(None)

    def _decide(self, now: float) -> tuple[int | Ended | Wait, Any]:
        self._check_usable()
        found = self._more(now)
        want = self._want(now)
        claim = None if isinstance(want, Wait) else want
        if claim is not None:
            self._under_way, self._asking = Future(), threading.get_ident()
        if found is not None:
            return found, claim
        if stopped := self._stopped():
            raise stopped.again()
        if passing := self._passing(now):
            return passing, claim
        if isinstance(want, Wait):
            if want.error is not None and not isinstance(want.error, DatabaseUnavailable):
                raise want.error.again()
            return want, None
        if claim is None and self._asking == threading.get_ident():
            raise reentrant_call(self._name())  # it would wait for what the interrupted call is about to ask for
        return self._under_way, claim

    def _check_usable(self) -> None:
        if self._background.closed.is_set():
            raise AllocatorClosed
        if self._spoilt:
            raise forked_unseen(self._name())

    # -- doing, without the lock

    def _submit(self, request: Request) -> None:
        self._background.submit(self._run, request)

    def _run(self, request: Request) -> None:
        try:
            result = self._work(request.claim)
        except BaseException as error:
            self._fail(request, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._succeed(request, result)

    def _succeed(self, request: Request, result: Any) -> None:
        try:
            with self._lock:
                self._granted(request.claim, result, monotonic())
                self._forget(request.ended)
        except Exception as error:
            self._fail(request, error)
        else:
            self._end(request, None)

    def _fail(self, request: Request, cause: BaseException) -> None:
        error = cause if isinstance(cause, AllocatorError) else unforeseen(cause)
        with self._lock:
            self._refused(request.claim, error, monotonic())
            self._forget(request.ended)
        self._end(request, error)

    def _end(self, request: Request, error: AllocatorError | None) -> None:
        """Log the first failure of a series that nobody waits for; whoever waits gets the error."""
        with suppress(Exception):  # a logging filter of the user's that fails must not keep claims from ending
            self._log(error, request.in_advance)
        self._failing = error is not None and (request.in_advance or self._failing)
        if not request.ended.done():
            request.ended.set_result(error)

    def _forget(self, ended: Ended) -> None:
        """A future is large, and most tags are idle."""
        if self._under_way is ended:
            self._under_way = self._background.idle

    def _log(self, error: AllocatorError | None, in_advance: bool) -> None:
        if error is None and self._failing:
            log.warning("%s: the database answers again", self._name())
        elif isinstance(error, LeaseLost):
            log.warning("%s: %s; another one is leased", self._name(), error)
        elif error is not None and in_advance and not self._failing:
            log.warning("%s: ids go on from memory while they last, since a claim failed: %s", self._name(), error)

    # -- waiting and ending

    def _next(self) -> int:
        """The next id after what was being served: from memory, or else from the database within the timeout."""
        end = monotonic() + self._terms.timeout
        while True:
            step = self._advance()
            if isinstance(step, int):
                return step
            left = end - monotonic()
            if left <= 0:
                raise self._overdue(step)
            if isinstance(step, Wait):
                pause(self._background.closed, min(step.seconds, left))
                continue
            try:
                error = result_of(step, min(left, WAIT_SLICE))
            except TimeoutError:
                continue
            self._raise_unless_passing(error)

    def _raise_unless_passing(self, error: AllocatorError | None) -> None:
        """After a request ended: its error concerns whoever waited, but for one that may pass within the deadline."""
        if error is not None and not isinstance(error, DatabaseUnavailable | LeaseLost):
            raise error.again()

    def _overdue(self, step: Ended | Wait | None = None) -> AllocatorError:
        """The error for a caller whose time is over: why the last request failed, though another one is under way."""
        recent = self._terms.timeout + RETRY_PAUSE
        with self._lock:
            error = step.error if isinstance(step, Wait) else self._pace.trouble(monotonic(), recent)
        if error is not None:
            return error.again()
        return DatabaseUnavailable(
            f"{self._name()}: the database did not answer within {self._terms.timeout:g} seconds"
        )

    def _retire(self) -> None:
        """The allocator is closed."""
        with self._lock:
            self._serve(())
            ended = self._under_way
        if not ended.done():
            ended.set_result(AllocatorClosed())

    def _change(self, backend: Backend, core: Any = None) -> Any:
        """Serve from another backend, by this core or a new one. Returns the one before, which has what was in memory
        but for the piece that was being served."""
        with self._lock:
            before, self._backend = self._core, backend
            self._core = core or self._new_core()
            self._reset()
        return before

    def _renew(self) -> None:
        """In a forked child: what is in memory is the parent's."""
        self._spoilt = self._spoilt or (forks.unseen and self._serves)
        self._core = self._new_core()
        self._reset()
