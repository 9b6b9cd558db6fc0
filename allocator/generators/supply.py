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
from allocator.runtime import forks
from allocator.runtime.iterators import exhaust, iterator
from allocator.runtime.reentrancy import check_entry, reentrant, repeated
from allocator.runtime.worker_pool import Background
from allocator.schemes.retry import RETRY_PAUSE, Pace, Wait

log = logging.getLogger("allocator")

Ended = Future[AllocatorError | None]
"""Done when a request has ended, with the error if it failed; asking again is the waiter's business."""

LOST_AFTER = 12
"""A request that has not ended after so many times the timeout is given up, and burnt should it end after all."""

NOT_LOOKED = object()


@dataclass(frozen=True, slots=True)
class Terms:
    """How an allocator serves; durations in seconds."""

    create_missing: bool
    runway: float
    timeout: float


def unforeseen(found: BaseException) -> AllocatorError:
    """Ctrl-C passes, and the next call may try again; anything else is a defect, and trying again is no remedy."""
    kind = DatabaseRefused if isinstance(found, Exception) else DatabaseUnavailable
    error = kind(f"a claim ended with {type(found).__name__}: {found}")
    error.__cause__ = found
    return error


class Supply(Uncopyable):
    """Serves ids of one kind. Safe to use from several threads and from asyncio at the same time.

    A subclass holds the pure core: `_want` asks it what would let it serve more, `_work` gets that from the database,
    `_granted` and `_refused` tell it how that went. `owner` is kept alive, since its at-fork hook renews this.
    """

    __slots__ = (
        "_asking",
        "_background",
        "_failing",
        "_lock",
        "_owner",
        "_serves",
        "_spoilt",
        "_terms",
        "_under_way",
        "_values",
    )

    _values: Iterator[int]
    _under_way: Ended

    def __init__(self, background: Background, terms: Terms, owner: object = None) -> None:
        self._background = background
        self._terms = terms
        self._owner = owner
        self._values = iter(())
        self._serves = self._spoilt = False
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._failing = False
        self._asking = 0
        self._under_way = self._background.nothing
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

    @property
    @abstractmethod
    def _pace(self) -> Pace[Any]:
        """Of the requests."""

    @abstractmethod
    def _name(self) -> str:
        """Of what is served, for messages."""

    @abstractmethod
    def _more(self, now: float) -> int | None:
        """Under the lock: the next id in memory, after what is being served was used up."""

    @abstractmethod
    def _want(self, now: float) -> Any:
        """Under the lock: a request to the database, a `Wait`, or None."""

    def _passing(self, now: float) -> Wait | None:
        """Under the lock: for how long to wait, where nothing but time is needed."""
        return None

    def _stopped(self) -> AllocatorError | None:
        """Under the lock: why there will be no more ids, ever."""
        return None

    @abstractmethod
    def _work(self, request: Any) -> Any:
        """Without the lock: carry out a request."""

    @abstractmethod
    def _granted(self, request: Any, result: Any, now: float) -> None:
        """Under the lock: the request was committed."""

    @abstractmethod
    def _refused(self, request: Any, error: AllocatorError, now: float) -> None:
        """Under the lock: the request failed, or nobody knows whether it did."""

    # -- deciding, under the lock

    def _advance(self) -> int | Ended | Wait:
        """The next id, or what to wait for before asking again; a signal handler may raise or fork in it."""
        self._check_entry()
        process, known, request = self._background.closed, NOT_LOOKED, None
        try:
            with self._lock:
                known = self._pace.under_way
                answer, request = self._decide(monotonic())
                ended = self._under_way
            if request is not None:
                self._submit(request, ended, isinstance(answer, int))
                self._asking = 0
        except BaseException:
            self._withdraw(request, known)
            raise
        finally:
            if process is not self._background.closed:
                self._renew()  # a handler forked: what was decided is the parent's
        return answer if process is self._background.closed else self._advance()

    def _check_entry(self) -> None:
        forks.catch_up()
        check_entry(self._lock, self._name())

    def _withdraw(self, request: Any, known: Any) -> None:
        """A call was interrupted after it had decided on a request, which nobody else would ever end."""
        if request is None and known is NOT_LOOKED:
            return
        with self._lock:
            begun = self._pace.under_way
            if request is None and begun is not known:
                request = begun
            if request is None or not self._pace.withdraw(request):
                return
            ended, self._asking = self._under_way, 0
            self._forget(ended)
        if not ended.done():
            ended.set_result(None)

    def _decide(self, now: float) -> tuple[int | Ended | Wait, Any]:
        self._check_usable()
        found = self._more(now)
        want = self._want(now)
        request = None if isinstance(want, Wait) else want
        if request is not None:
            self._under_way, self._asking = Future(), threading.get_ident()
        if found is not None:
            return found, request
        if stopped := self._stopped():
            raise stopped.again()
        if passing := self._passing(now):
            return passing, request
        if isinstance(want, Wait):
            if want.error is not None and not isinstance(want.error, DatabaseUnavailable):
                raise want.error.again()
            return want, None
        if request is None and self._asking == threading.get_ident():
            raise reentrant(self._name())  # it would wait for what the interrupted call is about to ask for
        return self._under_way, request

    def _check_usable(self) -> None:
        if self._background.closed.is_set():
            raise AllocatorClosed
        if self._spoilt:
            raise repeated(self._name())

    # -- doing, without the lock

    def _submit(self, request: Any, ended: Ended, in_advance: bool) -> None:
        self._background.submit(self._run, request, ended, in_advance)

    def _run(self, request: Any, ended: Ended, in_advance: bool) -> None:
        try:
            result = self._work(request)
        except BaseException as error:
            self._end(request, ended, error, in_advance)
            if not isinstance(error, Exception):
                raise
        else:
            self._brought(request, result, ended, in_advance)

    def _brought(self, request: Any, result: Any, ended: Ended, in_advance: bool) -> None:
        try:
            with self._lock:
                self._granted(request, result, monotonic())
                self._forget(ended)
        except Exception as error:
            self._end(request, ended, error, in_advance)
            return
        self._tell(None, in_advance)
        if not ended.done():
            ended.set_result(None)

    def _end(self, request: Any, ended: Ended, found: BaseException, in_advance: bool) -> None:
        error = found if isinstance(found, AllocatorError) else unforeseen(found)
        with self._lock:
            self._refused(request, error, monotonic())
            self._forget(ended)
        self._tell(error, in_advance)
        if not ended.done():
            ended.set_result(error)

    def _forget(self, ended: Ended) -> None:
        """A future is large, and most tags are idle."""
        if self._under_way is ended:
            self._under_way = self._background.nothing

    def _tell(self, error: AllocatorError | None, in_advance: bool) -> None:
        """Log the first failure of a series that nobody waits for; whoever waits gets the error."""
        with suppress(Exception):  # a logging filter of the user's that fails must not keep claims from ending
            self._log(error, in_advance)
        self._failing = error is not None and (in_advance or self._failing)

    def _log(self, error: AllocatorError | None, in_advance: bool) -> None:
        if error is None and self._failing:
            log.warning("%s: the database answers again", self._name())
        elif isinstance(error, LeaseLost):
            log.warning("%s: %s; another one is leased", self._name(), error)
        elif error is not None and in_advance and not self._failing:
            log.warning("%s: ids go on from memory while they last, since a claim failed: %s", self._name(), error)

    # -- waiting and ending

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

    def _renew(self) -> None:
        """In a forked child: what is in memory is the parent's."""
        self._spoilt = self._spoilt or (forks.unseen and self._serves)
        self._reset()
