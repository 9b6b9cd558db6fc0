"""Worker numbers for any generator: leased from the database, renewed by a thread, given back at the end.

The rule is in `allocator.schemes.worker_number_lease`. A forked child holds none of its parent's numbers.
Each lease has two threads: one renews it, and may hang in the driver; the other waits for its end and calls `on_lost`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction
from secrets import token_hex
from typing import Self

from allocator.errors import AllocatorError, InvalidSetting, Uncopyable
from allocator.generators.backend_protocol import Backend
from allocator.generators.supply import Terms
from allocator.runtime.forks import this_process
from allocator.runtime.threads import Waits, Work, result_of, to_thread, wait_for, wait_for_async
from allocator.schemes.shared.argument_checks import quoted
from allocator.schemes.shared.retry_pace import Wait
from allocator.schemes.worker_number_lease import Clocks, NumberClaim, NumberLease, Renewal, Tenure, length_of

log = logging.getLogger("allocator")

BOOT = getattr(time, "CLOCK_BOOTTIME", None)
"""Linux's clock that runs on while the machine sleeps; the monotonic clock stands still then."""
LOOK_AGAIN = 1.0
"""Seconds until a clock that jumped is noticed, as after a sleep of the machine, of which a wait knows nothing."""


def read_clocks() -> Clocks:
    own = time.monotonic() if BOOT is None else time.clock_gettime(BOOT)  # neither can be set
    return Clocks(own, time.time_ns() // 1_000_000)


def random_holder() -> str:
    return token_hex(16)


class Workers:
    """What the worker leases of an allocator share, and those that hold a number.

    renews: False where clocks stand still, as in `allocator.testing`: its leases start no thread.
    """

    def __init__(
        self,
        terms: Terms,
        overdue: Callable[[], AllocatorError],
        clocks: Callable[[], Clocks] = read_clocks,
        new_holder: Callable[[], str] = random_holder,
        renews: bool = True,
    ) -> None:
        self.terms, self.overdue = terms, overdue
        self.clocks, self.new_holder, self.renews = clocks, new_holder, renews
        self.held: set[HeldNumber] = set()

    def close(self) -> None:
        for one in list(self.held):
            one._give_back()

    def after_fork(self) -> None:
        self.held = set()  # they are the parent's


def said(error: BaseException) -> str:
    try:
        return str(error) if isinstance(error, AllocatorError) else f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def warn(text: str, *parts: object) -> None:
    with suppress(Exception):  # a handler of the user's that fails must not end a thread of a lease
        log.warning(text, *parts)


def give_back(backend: Backend, lease: NumberLease, used_ms: int) -> None:
    """Release a number. An error is logged: the lease then ends by itself."""
    try:
        backend.release_number(lease, used_ms)
    except Exception as error:
        warn("number %d of space %r was not given back: %s", lease.number, lease.space, said(error))


Taken = tuple[NumberLease, Clocks, int]
"""A lease; the clocks before the request, from which it counts; its process, since a fork must not renew it."""


class HeldNumber(Uncopyable):
    """A worker number of a space, while it is leased.

    Check `lost` or `left()` *after* an id is made and before it is used: what was made earlier is then safe, however
    long the process or its machine stood still meanwhile.
    """

    def __init__(
        self, workers: Workers, space: str, bits: int, seconds: float, on_lost: Callable[[], object] | None
    ) -> None:
        claim = NumberClaim(space, bits, length_of(seconds), 0, "").checked()
        if on_lost is not None and (not callable(on_lost) or iscoroutinefunction(on_lost)):
            raise InvalidSetting(f"on_lost must be a function, and none that is awaited, got {quoted(on_lost)}")
        self.space, self.bits, self._length_ms = claim.space, claim.bits, claim.length_ms
        self._on_lost = on_lost
        self._workers = workers
        self._backend = workers.terms.backend
        self._lease: NumberLease | None = None
        self._tenure: Tenure | None = None
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._work: Work[Taken] | None = None

    @property
    def number(self) -> int:
        """0 to 2**bits - 1. It stays the same while leased; `lost` tells whether it still is."""
        if self._lease is None:
            raise InvalidSetting(f"no number of space {self.space!r} is leased yet; lease one by a with block")
        return self._lease.number

    @property
    def until(self) -> datetime:
        """The end of the lease, unless it is renewed; the number must not be used later."""
        now = datetime.fromtimestamp(self._workers.clocks().wall_ms / 1000, UTC)
        return now + timedelta(seconds=self.left())

    @property
    def lost(self) -> bool:
        """Whether the number must no longer be used."""
        return self.left() <= 0

    def left(self) -> float:
        """The seconds left, by this machine's clocks; 0 or less when the number must no longer be used."""
        if self._process != os.getpid():
            return 0.0
        with self._changed:  # another thread may give the number back now
            return self._tenure.left(self._workers.clocks()) if self._tenure else 0.0

    def _leased(self) -> Waits[Self]:
        """Lease a number. What a call that failed or was cancelled may still lease is given back."""
        terms = self._workers.terms
        try:
            self._begin((yield from result_of(self._start, terms.background, terms.timeout, self._workers.overdue)))
        except BaseException:
            if self._work is not None:
                self._stop()
                self._work.when_done(partial(self._give_back_unused, self._work))
            raise
        return self

    def _start(self) -> Work[Taken]:
        if self.left() > 0:
            raise InvalidSetting(f"number {self.number} of space {self.space!r} is leased by this object already")
        self._changed = threading.Condition()  # in a forked child, a thread that is gone may hold the old one
        self._backend = self._workers.terms.backend
        self._work = self._workers.terms.background.submit(self._take)
        return self._work

    def _take(self) -> Taken:
        # Read before the request is sent: from here the lease counts, however long the answer takes.
        asked, holder = self._workers.clocks(), self._workers.new_holder()
        claim = NumberClaim(self.space, self.bits, self._length_ms, asked.wall_ms, holder, *this_process())
        return self._backend.lease_number(claim), asked, claim.process

    def _begin(self, found: Taken) -> None:
        lease, asked, process = found
        tenure = Tenure(self._length_ms, asked)
        tenure.check_answered(self._workers.clocks())
        self._lease, self._tenure, self._process = lease, tenure, process  # a signal handler may have forked since
        self._workers.held.add(self)
        if self._workers.renews:
            self._keep(lease, tenure)
        self._work = None  # the lease is ours now: a late cancellation must not give it back

    def _keep(self, lease: NumberLease, tenure: Tenure) -> None:
        """Renew it until the end, and tell of its loss."""
        for run in self._renew, self._watch:
            threading.Thread(target=run, args=(lease, tenure), name="allocator-worker", daemon=True).start()

    def _stop(self) -> Tenure | None:
        """End the threads, and return what was leased; None if it was stopped before."""
        with self._changed:
            tenure, self._tenure = self._tenure, None
            self._changed.notify_all()
        self._workers.held.discard(self)
        return tenure

    def _give_back_unused(self, work: Work[Taken]) -> None:
        found, _ = work.ended[0]
        if found is not None:
            lease, asked, _ = found
            with suppress(AllocatorError):
                self._workers.terms.background.submit(self._backend.release_number, lease, asked.wall_ms)

    def _holds(self, tenure: Tenure) -> bool:
        """Whether the lease is still that of this process, and was not given back; it may be lost."""
        return self._tenure is tenure and self._process == os.getpid()

    def _renew(self, lease: NumberLease, tenure: Tenure) -> None:
        while self._holds(tenure):
            with self._changed:
                step = tenure.want(self._workers.clocks())
                if isinstance(step, Wait) and self._holds(tenure):
                    self._changed.wait(step.seconds)
            if step is None:
                return
            if isinstance(step, Renewal):
                self._ask(lease, tenure, step.asked)

    def _ask(self, lease: NumberLease, tenure: Tenure, asked: Clocks) -> None:
        try:
            # Without the lock, so that `left()` does not wait for the database.
            self._backend.renew_number(lease, asked.wall_ms)
        except BaseException as error:  # whatever a driver raises: the thread must try again
            warn("number %d of space %r was not renewed: %s", lease.number, lease.space, said(error))
            with self._changed:
                tenure.failed(error)
                self._changed.notify_all()
        else:
            with self._changed:
                tenure.renewed(asked, self._workers.clocks())

    def _watch(self, lease: NumberLease, tenure: Tenure) -> None:
        """Wait for the end of the lease. Asks no database, so that no driver that hangs delays it."""
        has_ended = False
        while not has_ended:
            with suppress(BaseException), self._changed:  # a MemoryError, or what was sent to this thread
                while self._holds(tenure) and (left := tenure.left(self._workers.clocks())) > 0:
                    self._changed.wait(min(left, LOOK_AGAIN))
                has_ended = True
        if self._holds(tenure):
            self._tell(lease)

    def _tell(self, lease: NumberLease) -> None:
        self._workers.held.discard(self)
        try:
            if self._on_lost is not None:
                self._on_lost()  # before anything is logged: a log may hang, as on a full pipe
        except BaseException:  # sys.exit() too, which would end this thread without a word
            with suppress(Exception):
                log.exception("on_lost of number %d of space %r failed", lease.number, lease.space)
        warn("number %d of space %r is lost: its lease was not renewed in time", lease.number, lease.space)

    def _give_back(self) -> None:
        """Give the number back, unless it is lost."""
        if self._process != os.getpid() or self._lease is None:
            return
        # Before the stop, after which `left()` is 0.
        is_ours = self.left() > 0
        tenure = self._stop()
        if is_ours and tenure is not None:
            give_back(self._backend, self._lease, tenure.used_ms)

    def __repr__(self) -> str:
        number = "" if self._lease is None else f" {self._lease.number}"
        return f"<{type(self).__name__} {self.space}{number}>"


class WorkerLease(HeldNumber):
    """A worker number of a space, leased by a `with` block: see `Allocator.worker`."""

    def close(self) -> None:
        """Give the number back; the `with` block does it at its end."""
        self._give_back()

    def __enter__(self) -> Self:
        return wait_for(self._leased())

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncWorkerLease(HeldNumber):
    """As `WorkerLease`, for `async with`. `on_lost` is called on a thread of its own, not in the event loop."""

    async def close(self) -> None:
        """Give the number back; the `async with` block does it at its end."""
        await to_thread(self._give_back)

    async def __aenter__(self) -> Self:
        return await wait_for_async(self._leased())

    async def __aexit__(self, *_: object) -> None:
        await self.close()
