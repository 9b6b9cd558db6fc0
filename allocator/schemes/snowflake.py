"""Snowflake: milliseconds, a datacenter and a worker, and a sequence.

    sign 1 | timestamp 41 | datacenter 5 | worker 5 | sequence 12

timestamp     milliseconds since the epoch (2010-11-04T01:42:54.657Z); ends in 2080
datacenter,   identify the generator; two that run at the same time must differ
worker
sequence      4096 ids a millisecond; then the generator waits for the next millisecond

Ids are unique because no two generators use one worker in the same millisecond. A generator without a lease refuses a
clock that goes back. A lease is a worker with a range of milliseconds, written to the database before use: two holders
of one worker own disjoint rectangles of (worker, time), whatever their clocks do.
Source: Twitter's snowflake, 2010.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from allocator.errors import AllocatorError, ClockWentBack, InvalidArgument, InvalidSetting, LeaseLost, NodeIdsExhausted
from allocator.schemes.formats.bit_layout import MAX_EPOCH, Format, Layout, check_layout, moment
from allocator.schemes.shared.argument_checks import check_seconds, check_whole
from allocator.schemes.shared.retry_pace import Pace, Wait

NOTHING = range(0)
EPOCH = 1_288_834_974_657
"""Twitter's: 2010-11-04T01:42:54.657Z."""
SNOWFLAKE = Layout(sign=1, timestamp=41, datacenter=5, worker=5, sequence=12)

NUMBER_BITS = 31
"""Worker numbers are stored in a signed 32-bit column."""

RENEW_AFTER = 0.1
"""The share of a lease after which it is renewed: nine tenths are left if the database fails then."""


class SnowflakeBlocks:
    """The ids of one worker, one tick at a time: a millisecond, or what the format counts. Callers hold a lock.

    worker: one number for datacenter and worker.
    """

    __slots__ = ("_base", "_shift", "_size", "form", "last")

    def __init__(self, worker: int, form: Format) -> None:
        layout = form.layout
        check_whole("epoch", form.epoch, 0, 1000 * MAX_EPOCH)
        self.form = form
        self._base = worker << layout.shift("worker")
        self._shift = layout.shift(form.clock)
        self._size = 1 << layout.widths["sequence"]
        self.last = -1

    def draw(self, now: float, *, waits: bool) -> range | Wait:
        """The ids of a new tick, or the wait for it: the ids of the last one are used up.

        waits: for a clock that went back; otherwise raises `ClockWentBack`. now: seconds since 1970.
        """
        per_second = self.form.per_second
        tick = int(now * per_second)
        if tick == self.last:
            return Wait(max(0.0, (tick + 1) / per_second - now))
        if tick < self.last and waits:
            return Wait((self.last - tick) / per_second)
        return self.take(tick)

    def take(self, tick: int) -> range:
        """The ids of a tick, counted from 1970; empty if the last call took this tick. Raises `ClockWentBack`."""
        form = self.form
        if tick <= self.last:
            if tick < self.last:
                raise ClockWentBack(
                    f"the clock went back by {(self.last - tick) * form.tick} ms, to {moment(tick / form.per_second)}; "
                    "retry when it has caught up"
                )
            return NOTHING
        ticks = form.layout.ticks(form.clock, tick, form.first_tick, form.per_second)
        self.last = tick
        first = self._base | ticks << self._shift
        return range(first, first + self._size)


@dataclass(frozen=True, slots=True)
class SnowflakeSettings:
    """The format of an allocator's snowflake ids: `epoch` in milliseconds since 1970, `lease` in seconds.

    All processes of a database must use the same epoch and layout; the database stores both with each lease.
    """

    epoch: int = EPOCH
    layout: Layout = SNOWFLAKE
    lease: float = 60.0

    @property
    def form(self) -> Format:
        return Format(self.layout, self.epoch)

    def checked(self) -> SnowflakeSettings:
        check_seconds("lease", self.lease, 0.1)
        check_layout(self.layout, SNOWFLAKE)
        SnowflakeBlocks(0, self.form)
        if self.layout.widths["datacenter"] + self.layout.widths["worker"] > NUMBER_BITS:
            raise InvalidSetting(
                f"datacenter and worker may have at most {NUMBER_BITS} bits together, got {self.layout!r}"
            )
        return self

    def check_time(self, millisecond: int) -> None:
        """Raise if the format has no id for this millisecond; called before a worker is leased for it."""
        SnowflakeBlocks(0, self.form).take(millisecond)


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker number, datacenter included, and the milliseconds since 1970 in which its holder may use it."""

    number: int
    holder: str
    since: int
    until: int


@dataclass(frozen=True, slots=True, eq=False)
class LeaseClaim:
    """A request to renew `lease` until a millisecond, or to lease any worker if it is None."""

    lease: Lease | None
    now: int
    until: int

    @property
    def span(self) -> int:
        return self.until - self.now


class LeasedSnowflake:
    """The ids of one process under leases. Pure, and driven like `Segments`.

    Time advances with the monotonic clock; the wall clock is read when a lease is granted, and can only move time
    forward. So a jump of the wall clock neither repeats ids nor stops them.
    """

    def __init__(self, span: float, epoch: int, layout: Layout, lost_after: float = 60.0) -> None:
        self.span = round(span * 1000)
        self.epoch, self.layout = epoch, layout
        self.pace: Pace[LeaseClaim] = Pace(lost_after)
        self.lease: Lease | None = None
        self._blocks: SnowflakeBlocks | None = None
        self._offset = 0.0
        self._last = -1

    def millisecond(self, now: float) -> int:
        return int(now * 1000 + self._offset)

    def ends_at(self, millisecond: int) -> float:
        """The end of a millisecond, in monotonic seconds."""
        return (millisecond + 1 - self._offset) / 1000

    def holds(self, now: float) -> bool:
        """Whether the present millisecond is in the lease."""
        return self.lease is not None and self.lease.since <= self.millisecond(now) <= self.lease.until

    def take(self, now: float) -> range:
        """The ids of the present millisecond; empty if they are used up, or if the lease does not cover it."""
        if self._blocks is None or not self.holds(now):
            return NOTHING
        return self._blocks.take(max(self.millisecond(now), self._blocks.last))

    def want(self, now: float, wall: float) -> LeaseClaim | Wait | None:
        """The next step: a `LeaseClaim`, which counts as under way from now on, a `Wait`, or None.

        wall: the wall clock, in seconds since 1970.
        """
        at = self.millisecond(now)
        if self.pace.busy(now):
            return None
        if self.lease is not None and at <= self.lease.until - self.span * (1 - RENEW_AFTER):
            return None
        if wait := self.pace.wait(now):
            return wait
        begin = max(at if self._offset else 0, int(wall * 1000))
        return self.pace.begin(LeaseClaim(self.lease, begin, begin + self.span), now)

    def granted(self, claim: LeaseClaim, lease: Lease, now: float) -> None:
        """Record a committed lease. The lease of a claim that is no longer under way is left to expire."""
        if not self.pace.succeeded(claim):
            return
        if self.lease is None or self.lease.number != lease.number or self._blocks is None:
            self._blocks = SnowflakeBlocks(lease.number, Format(self.layout, self.epoch))
            self._blocks.last = self._last
        self.lease = lease
        self._offset = max(self._offset, max(claim.now, lease.since) - now * 1000)

    def failed(self, claim: LeaseClaim, error: AllocatorError, now: float) -> None:
        """Record a failed claim.

        `LeaseLost` drops the lease, and the next claim may start at once. If our time is refused as too far ahead, and
        the lease has ended, the next one starts from the wall clock.
        """
        if not self.pace.failed(claim, error, now):
            return
        if isinstance(error, LeaseLost):
            if self._blocks is not None:
                self._last = self._blocks.last
            self.lease = self._blocks = None
            self.pace.clear()
        elif isinstance(error, InvalidArgument) and not self.holds(now):
            self.lease = self._blocks = None
            self._offset, self._last = 0.0, -1


AHEAD_MS = 60_000
"""How far a claim may be ahead of the database's clock, besides what a failover has set it ahead. What is written far
ahead stays: a worker would be leased for years."""


def check_time(claim: LeaseClaim, at: int) -> None:
    """Raise `InvalidSetting` where a claim is too far ahead of `at`, the database's clock and what a failover added."""
    if claim.now > at + AHEAD_MS:
        raise InvalidSetting(
            f"the clock of this machine is {(claim.now - at) / 1000:.0f} s ahead of the database's, and may be "
            f"{AHEAD_MS // 1000} s ahead; set both clocks"
        )


CHOICE = 16
"""Candidates to pick from at random, so that processes that start together rarely pick the same one."""


@dataclass(frozen=True, slots=True)
class SnowflakeWorker:
    """A snowflake worker and its lease: `number` is datacenter and worker, `until` milliseconds since 1970."""

    number: int
    layout: str
    epoch: int
    holder: str
    until: int
    host: str
    process: int


def check_same(workers: Sequence[SnowflakeWorker], layout: Layout, epoch: int) -> None:
    """Raise `InvalidSetting` where a lease was written for another layout or epoch."""
    for worker in workers:
        if (worker.layout, worker.epoch) != (str(layout), epoch):
            raise InvalidSetting(
                f"worker {worker.number} was leased for layout {worker.layout} and epoch {worker.epoch}, but this "
                f"process uses {layout} and {epoch}; all processes of a database must use the same. To change the "
                "format, first make sure that no id of the old one is in use; then stop all processes and delete the "
                "rows of allocator_worker"
            )


def choose_worker(
    workers: Sequence[SnowflakeWorker], layout: Layout, epoch: int, now: int, pick: int
) -> SnowflakeWorker | int:
    """Choose a number that was never leased, or else a worker whose lease has ended; `pick` is a random number.

    Raises the errors of `check_same`, and `NodeIdsExhausted` when all workers are leased.
    """
    check_same(workers, layout, epoch)
    size = 1 << layout.widths["datacenter"] + layout.widths["worker"]
    taken = {worker.number for worker in workers}
    free = list(islice((number for number in range(size) if number not in taken), CHOICE))
    if free:
        return free[pick % len(free)]
    # By our clock, which may be ahead of the holder's. Then the holder loses its lease early, but no id repeats.
    expired = sorted((worker for worker in workers if worker.until < now), key=lambda worker: worker.until)
    if not expired:
        raise exhausted(workers, now)
    return expired[pick % min(len(expired), CHOICE)]


def exhausted(workers: Sequence[SnowflakeWorker], now: int) -> AllocatorError:
    ends = min(worker.until for worker in workers)
    holders = sorted({f"{worker.host} (process {worker.process})" for worker in workers})
    named = ", ".join(holders[:5]) + (" and others" if len(holders) > 5 else "")
    return NodeIdsExhausted(
        f"all {len(workers)} workers are leased, by {named}; "
        f"the next lease ends in {max(0, ends - now) / 1000:.0f} s, at {moment(ends / 1000)}"
    )
