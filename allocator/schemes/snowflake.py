"""Snowflake: milliseconds, a datacenter and a worker, and a sequence.

    sign 1 | timestamp 41 | datacenter 5 | worker 5 | sequence 12

timestamp     milliseconds since the epoch (2010-11-04T01:42:54.657Z); runs out in 2080
datacenter,   who made the id; two that make ids at the same time must differ
worker
sequence      4096 ids a millisecond, and no more: the next one is waited for

What makes ids unique is that nobody else uses the same worker in the same millisecond. Alone, a clock that goes back
breaks that, so it is refused. With a lease, the worker comes with a range of milliseconds that was written to the
database before use: two holders of one worker own disjoint rectangles of (worker, time), whatever their clocks do.
Source: Twitter's snowflake, 2010.
"""

from __future__ import annotations

from dataclasses import dataclass

from allocator.errors import AllocatorError, ClockWentBack, InvalidArgument, InvalidSetting, LeaseLost
from allocator.schemes.checks import check_seconds, check_whole
from allocator.schemes.layout import MAX_EPOCH, Layout, check_layout, moment
from allocator.schemes.retry import Pace, Wait

NOTHING = range(0)
EPOCH = 1_288_834_974_657
SNOWFLAKE = Layout(sign=1, timestamp=41, datacenter=5, worker=5, sequence=12)

NUMBER_BITS = 31
"""The column of worker numbers is a 32-bit one."""

RENEW_AFTER = 0.1
"""Of a lease, when it is renewed: at any moment nine tenths of it are left, should the database go away."""


class SnowflakeBlocks:
    """The ids of one worker, a millisecond's worth at a time. Not safe to use concurrently: callers hold a lock."""

    __slots__ = ("_base", "_shift", "_size", "epoch", "last", "layout")

    def __init__(self, datacenter: int, worker: int, epoch: int = EPOCH, layout: Layout = SNOWFLAKE) -> None:
        self.layout = check_layout(layout, SNOWFLAKE)
        self.epoch = check_whole("epoch", epoch, 0, 1000 * MAX_EPOCH)
        self._base = layout.pack(
            datacenter=check_whole("datacenter", datacenter, 0, layout.limit("datacenter")),
            worker=check_whole("worker", worker, 0, layout.limit("worker")),
        )
        self._shift = layout.shift("timestamp")
        self._size = 1 << layout.widths["sequence"]
        self.last = -1

    def take(self, millisecond: int) -> range:
        """The ids of a millisecond since 1970, if it is a new one. Raises `ClockWentBack` for one before the last."""
        if millisecond <= self.last:
            if millisecond < self.last:
                raise ClockWentBack(
                    f"the clock went back by {self.last - millisecond} ms, to {moment(millisecond / 1000)}; "
                    "no ids until it has caught up"
                )
            return NOTHING
        timestamp = self.layout.ticks("timestamp", millisecond, self.epoch, 1000)
        self.last = millisecond
        first = self._base | timestamp << self._shift
        return range(first, first + self._size)


@dataclass(frozen=True, slots=True)
class SnowflakeSettings:
    """The format of an allocator's snowflake ids: `epoch` in milliseconds since 1970, `lease` in seconds.

    All processes of a database must use the same epoch and layout, which are written down with the leases.
    """

    epoch: int = EPOCH
    layout: Layout = SNOWFLAKE
    lease: float = 60.0

    def checked(self) -> SnowflakeSettings:
        check_seconds("lease", self.lease, 0.1)
        SnowflakeBlocks(0, 0, self.epoch, self.layout)
        if self.layout.widths["datacenter"] + self.layout.widths["worker"] > NUMBER_BITS:
            raise InvalidSetting(f"datacenter and worker have at most {NUMBER_BITS} bits together, got {self.layout!r}")
        return self

    def check_time(self, millisecond: int) -> None:
        """Raise what ids of this moment would, before a worker is leased for nothing."""
        SnowflakeBlocks(0, 0, self.epoch, self.layout).take(millisecond)


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker, and the milliseconds since 1970 in which it is ours; `number` holds datacenter and worker."""

    number: int
    holder: str
    since: int
    until: int


@dataclass(frozen=True, slots=True, eq=False)
class LeaseClaim:
    """Ask the database for `lease` until a later millisecond, or for any worker if that is None."""

    lease: Lease | None
    now: int
    until: int


class LeasedSnowflake:
    """The ids of one process under leases. Pure like `Segments`, and driven the same way.

    Time goes on by the monotonic clock; the wall clock is looked at when a lease is granted, and can only move it
    forward. So a wall clock that jumps neither repeats an id nor stops them.
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
        """The monotonic second at which a millisecond is over."""
        return (millisecond + 1 - self._offset) / 1000

    def holds(self, now: float) -> bool:
        """The present millisecond is in the lease."""
        return self.lease is not None and self.lease.since <= self.millisecond(now) <= self.lease.until

    def take(self, now: float) -> range:
        """The ids of the present millisecond, empty when they are used up or it is outside the lease."""
        if self._blocks is None or not self.holds(now):
            return NOTHING
        return self._blocks.take(max(self.millisecond(now), self._blocks.last))

    def want(self, now: float, wall: float) -> LeaseClaim | Wait | None:
        """What would let this process go on; a `LeaseClaim` is under way from here on. `wall` is seconds since 1970."""
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
        """The claim was committed: `lease` is ours. One that is no longer under way is left to expire."""
        if not self.pace.succeeded(claim):
            return
        if self.lease is None or self.lease.number != lease.number or self._blocks is None:
            workers = self.layout.widths["worker"]
            self._blocks = SnowflakeBlocks(
                lease.number >> workers, lease.number & self.layout.limit("worker"), self.epoch, self.layout
            )
            self._blocks.last = self._last
        self.lease = lease
        self._offset = max(self._offset, max(claim.now, lease.since) - now * 1000)

    def failed(self, claim: LeaseClaim, error: AllocatorError, now: float) -> None:
        """The claim failed. A lease that was lost is given up, and another one is asked for at once. Where our time is
        refused, as one that is far ahead of the service's, the next lease begins by the wall clock."""
        if not self.pace.failed(claim, error, now):
            return
        if isinstance(error, LeaseLost):
            if self._blocks is not None:
                self._last = self._blocks.last
            self.lease = self._blocks = None
            self.pace.clear()
        elif isinstance(error, InvalidArgument) and self.lease is None:
            self._offset, self._last = 0.0, -1
