"""Snowflake generators: with datacenter and worker from the caller, or under workers leased from the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from math import inf
from time import monotonic
from typing import Literal

from allocator.errors import InvalidSetting
from allocator.generators.supply import Supply, Terms
from allocator.generators.worker_numbers import give_back, random_holder, read_clocks
from allocator.runtime import forks
from allocator.runtime.forks import this_process
from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.shared.argument_checks import check_whole, quoted
from allocator.schemes.shared.retry_pace import Wait, found_by
from allocator.schemes.snowflake import (
    EPOCH,
    SNOWFLAKE,
    LeaseClaim,
    LeasedSnowflake,
    SnowflakeBlocks,
    SnowflakeSettings,
)
from allocator.schemes.worker_number_lease import NumberLease


class Snowflake(forks.Unforkable):
    """Snowflake ids of one datacenter and worker. No other generator may use them at the same time.

    `Allocator.snowflake` leases a worker from the database instead.

    datacenter, worker: 0 to 31 each in the default layout.
    layout: your own widths: `Layout(sign=1, timestamp=41, datacenter=3, worker=7, sequence=12)`.
    epoch: milliseconds since 1970, by default 2010-11-04T01:42:54.657Z.
    on_clock_back: "refuse" raises `ClockWentBack` until the clock has caught up; "wait" waits instead.
    clock, sleep: functions for the time, in seconds since 1970, and to wait.

    Safe to use from several threads. After the ids of a millisecond, 4096 by default, it waits for the next one. No id
    has the millisecond of its start, which another generator of this worker may have used.
    """

    _name, _given = "this snowflake", "worker"

    def __init__(
        self,
        datacenter: int = 0,
        worker: int = 0,
        *,
        epoch: int = EPOCH,
        layout: Layout = SNOWFLAKE,
        on_clock_back: Literal["refuse", "wait"] = "refuse",
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if on_clock_back not in ("refuse", "wait"):
            raise InvalidSetting(f"on_clock_back must be 'refuse' or 'wait', got {quoted(on_clock_back, 40)}")
        form = SnowflakeSettings(epoch, layout).checked().form
        check_whole("datacenter", datacenter, 0, layout.limit("datacenter"))
        check_whole("worker", worker, 0, layout.limit("worker"))
        self._blocks = SnowflakeBlocks(datacenter << layout.widths["worker"] | worker, form)
        self._waits = on_clock_back == "wait"
        self._clock, self._sleep = clock, sleep
        self._begin, self._end = inf, -inf
        now_ms = int(clock() * 1000)
        if now_ms < epoch:
            raise InvalidSetting(f"epoch must not be in the future, got {epoch}")
        self._blocks.last = now_ms  # another generator of this worker may have used this millisecond
        super().__init__()

    def next_id(self) -> int:
        """The next id, greater than the last. Raises `ClockWentBack`, or `Exhausted` after the last timestamp."""
        if self._begin <= self._clock() < self._end:
            try:
                return next(self._values)
            except StopIteration:
                pass
        return self._refill()

    def _refill(self) -> int:
        forks.enter(self)
        return found_by(self._attempt, self._clock, self._sleep)

    def _attempt(self) -> int | Wait:
        with self._lock:
            return self._decide(self._clock())

    def _decide(self, now: float) -> int | Wait:
        self._check_process()
        now_ms = int(now * 1000)
        if now_ms == self._blocks.last and (value := next(self._values, None)) is not None:
            return value  # another thread refilled first
        values = self._blocks.draw(now, waits=self._waits)
        if isinstance(values, Wait):
            return values
        first = self._serve(values)
        self._begin, self._end = now_ms / 1000, (now_ms + 1) / 1000
        return first

    def after_fork(self) -> None:
        self._begin, self._end = inf, -inf
        super().after_fork()


class SnowflakeSupply(Supply):
    """The snowflakes of an allocator, under a leased worker. Those of a millisecond may be used until it ends."""

    _name = "snowflake"

    def __init__(self, terms: Terms, settings: SnowflakeSettings) -> None:
        self._settings = settings
        super().__init__(terms)

    def _new_core(self) -> LeasedSnowflake:
        return LeasedSnowflake(self._settings, read_clocks, self._terms.lost_after)

    def _serve(self, values: Iterable[int]) -> int | None:
        first = super()._serve(values)
        if first is not None:
            self.end = monotonic() + self._core.passing(read_clocks())
        return first

    def _claim(self, claim: LeaseClaim) -> NumberLease:
        backend = self._terms.backend
        if claim.lease is None:
            wanted = self._settings.claim(claim.asked.wall_ms, random_holder(), *this_process())
            return backend.lease_number(wanted)
        backend.renew_number(claim.lease, claim.asked.wall_ms)
        return claim.lease

    def lease(self) -> tuple[int, float] | None:
        """The worker, and the seconds that its lease lasts if renewals fail; None without one.

        Infinite while none has failed: without draws it is not renewed, and just ends.
        """
        with self._lock:
            lease, left = self._core.lease, max(0.0, self._core.left(read_clocks()))
        return (lease.number, left if self._failing else inf) if lease else None

    def give_back(self) -> None:
        """Release the worker, after the last id: the allocator is closed."""
        with self._lock:
            held = None if self._core.pace.failure else self._core.given_back(read_clocks())
        if held:
            give_back(self._terms.backend, *held)
