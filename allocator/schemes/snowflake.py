"""Snowflake: milliseconds, a datacenter and a worker, and a sequence.

    sign 1 | timestamp 41 | datacenter 5 | worker 5 | sequence 12

timestamp     milliseconds since the epoch (2010-11-04T01:42:54.657Z); ends in 2080
datacenter,   identify the generator; two that run at the same time must differ
worker
sequence      4096 ids a millisecond; then the generator waits for the next millisecond

Ids are unique because no two generators use one worker in the same millisecond. A generator without a lease refuses a
clock that goes back. An allocator leases a worker as a number of the space `@snowflake`, and the times in its ids are
values, from the first request of the lease to a length after the last one. Whoever has the number next begins later, by
the rule of `worker_number_lease`: so no id repeats, whatever the clocks do.
Source: Twitter's snowflake, 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from allocator.errors import AllocatorError, ClockWentBack, InvalidSetting, LeaseLost
from allocator.schemes import worker_number_lease as rule
from allocator.schemes.formats.bit_layout import MAX_EPOCH, Format, Layout, check_layout, moment
from allocator.schemes.shared.argument_checks import check_seconds, check_whole
from allocator.schemes.shared.retry_pace import Pace, Wait
from allocator.schemes.worker_number_lease import Clocks, NumberClaim, NumberLease, Tenure

NOTHING = range(0)
EPOCH = 1_288_834_974_657
"""Twitter's: 2010-11-04T01:42:54.657Z."""
SNOWFLAKE = Layout(sign=1, timestamp=41, datacenter=5, worker=5, sequence=12)


class SnowflakeBlocks:
    """The ids of one worker, one millisecond at a time. Callers hold a lock.

    worker: one number for datacenter and worker. form: that of checked settings.
    """

    __slots__ = ("_base", "_shift", "_size", "form", "last")

    def __init__(self, worker: int, form: Format) -> None:
        layout = form.layout
        self.form = form
        self._base = worker << layout.shift("worker")
        self._shift = layout.shift("timestamp")
        self._size = 1 << layout.widths["sequence"]
        self.last = -1

    def draw(self, now: float, *, waits: bool) -> range | Wait:
        """The ids of a new millisecond, or the wait for it: the ids of the last one are used up.

        waits: for a clock that went back; otherwise raises `ClockWentBack`. now: seconds since 1970.
        """
        now_ms = int(now * 1000)
        if now_ms == self.last:
            return Wait(max(0.0, (now_ms + 1) / 1000 - now))
        if now_ms < self.last and waits:
            return Wait((self.last - now_ms) / 1000)
        return self.take(now_ms)

    def take(self, at_ms: int) -> range:
        """The ids of a millisecond since 1970; empty if the last call took it. Raises `ClockWentBack`."""
        if at_ms <= self.last:
            if at_ms < self.last:
                raise ClockWentBack(
                    f"the clock went back by {self.last - at_ms} ms, to {moment(at_ms / 1000)}; retry when it has "
                    "caught up"
                )
            return NOTHING
        ticks = self.form.ticks(at_ms)
        self.last = at_ms
        first = self._base | ticks << self._shift
        return range(first, first + self._size)


@dataclass(frozen=True, slots=True)
class SnowflakeSettings:
    """The format of an allocator's snowflake ids: `epoch` in milliseconds since 1970, `lease` in seconds, 1 to 600.

    All processes of a database must use the same; the first lease writes it down.
    """

    epoch: int = EPOCH
    layout: Layout = SNOWFLAKE
    lease: float = rule.SNOWFLAKE_SECONDS

    @property
    def form(self) -> Format:
        return Format(self.layout, self.epoch)

    @property
    def length_ms(self) -> int:
        return round(1000 * self.lease)

    @property
    def kept(self) -> str:
        """The format, as the rows of the leases keep it."""
        return f"{self.layout} {self.epoch}"

    @property
    def bits(self) -> int:
        """The width of datacenter and worker, which are one number."""
        return self.layout.widths["datacenter"] + self.layout.widths["worker"]

    def first_id_at(self, at: datetime) -> int:
        """The least id of a time, for `WHERE id >= …`; 0 before the epoch. A time without a zone is UTC."""
        return self.form.first_id_at(at)

    def checked(self) -> SnowflakeSettings:
        check_seconds("lease", self.lease, rule.MIN_SECONDS, rule.MAX_SECONDS)
        check_layout(self.layout, SNOWFLAKE)
        check_whole("epoch", self.epoch, 0, 1000 * MAX_EPOCH)
        if self.bits > rule.MAX_BITS:
            raise InvalidSetting(
                f"datacenter and worker may have at most {rule.MAX_BITS} bits together, got {self.layout!r}"
            )
        return self

    def claim(self, wall_ms: int, holder: str, host: str, process: int) -> NumberClaim:
        """A request for a worker. Raises if the format has no id for this millisecond, before one is leased for it."""
        self.form.ticks(wall_ms)
        return NumberClaim(rule.SNOWFLAKE, self.bits, self.length_ms, wall_ms, holder, host, process, self.kept)


@dataclass(frozen=True, slots=True, eq=False)
class LeaseClaim:
    """A request to renew `lease`, or to lease any worker if it is None. `asked` are the clocks before it is sent."""

    lease: NumberLease | None
    asked: Clocks


class LeasedSnowflake:
    """The ids of one process under leases, driven like `Segments`. It calls nothing but `clocks`, which reads both.

    The time in the ids is a value, which advances with the clock of the process from the last request that was granted.
    A request asks by the wall clock, or by the last value if that is later: a wall clock that steps back stops no ids.
    """

    stopped: AllocatorError | None = None

    def __init__(self, settings: SnowflakeSettings, clocks: Callable[[], Clocks], lost_after: float = 60.0) -> None:
        self.pace: Pace[LeaseClaim] = Pace(lost_after)
        self.lease: NumberLease | None = None
        self._settings, self._clocks = settings, clocks
        self._tenure: Tenure | None = None
        self._blocks = SnowflakeBlocks(0, settings.form)
        self._last = -1
        """The last value, or the first request of the lease."""
        self._ahead = 0.0

    def _value(self, now: Clocks) -> int:
        """The millisecond of the next ids."""
        return max(int(now.own * 1000 + self._ahead), self._last)

    def _asking(self, now: Clocks) -> Clocks:
        return Clocks(now.own, max(now.wall_ms, self._last))

    def left(self, now: Clocks) -> float:
        """The seconds left of the lease; at most 0 without one."""
        return 0.0 if self._tenure is None else self._tenure.left(self._asking(now))

    def passing(self, now: Clocks) -> float:
        """The seconds until the millisecond of the last ids ends."""
        return max(0.0, (self._last + 1 - self._ahead) / 1000 - now.own)

    def take(self) -> range | Wait:
        """The ids of the present millisecond; a `Wait` for its end if they are used up. Empty without a lease."""
        now = self._clocks()  # once: at another moment the lease may have ended
        if self.left(now) <= 0:
            return NOTHING
        self._last = self._value(now)
        return self._blocks.take(self._last) or Wait(self.passing(now))

    def want(self, now: float, missing: int = 1) -> LeaseClaim | Wait | None:
        """The next step: a `LeaseClaim`, which counts as under way from now on, a `Wait`, or None.

        now: the clock of `pace`, as in `failed`.
        """
        clocks, tenure = self._clocks(), self._tenure
        asked = self._asking(clocks)
        if self.pace.busy(now) or (tenure is not None and tenure.left(asked) > 0 and tenure.due(asked) > 0):
            return None
        if wait := self.pace.wait(now):
            return wait
        if tenure is None or tenure.lost:
            self._drop()
            if asked.wall_ms - clocks.wall_ms > self._settings.length_ms:
                # Another number may begin earlier: the database refuses times that are far ahead of its own.
                self._last, asked = -1, clocks
        return self.pace.begin(LeaseClaim(self.lease, asked), now)

    def committed(self, claim: LeaseClaim, lease: NumberLease, now: float) -> None:
        """Record a committed lease. The lease of a claim that is no longer under way is left to expire."""
        if not self.pace.succeeded(claim):
            return
        if claim.lease is None:
            self.lease, self._tenure = lease, Tenure(lease.length_ms, claim.asked)
            self._blocks = SnowflakeBlocks(lease.number, self._settings.form)
            self._blocks.last, self._last = self._last, claim.asked.wall_ms
        elif self._tenure is not None:
            self._tenure.renewed(claim.asked, self._asking(self._clocks()))
        self._ahead = claim.asked.wall_ms - claim.asked.own * 1000

    def failed(self, claim: LeaseClaim, error: AllocatorError, now: float) -> None:
        """Record a failed claim. `LeaseLost` drops the lease, and the next claim, for another, may start at once."""
        if self.pace.failed(claim, error, now) and isinstance(error, LeaseLost):
            self._drop()
            self.pace.clear()

    def given_back(self, now: Clocks) -> tuple[NumberLease, int] | None:
        """End the lease: what is released, and the last millisecond of its use; None where it is lost."""
        is_held, lease, tenure = self.left(now) > 0, self.lease, self._tenure
        self._drop()
        return (lease, tenure.used_ms) if is_held and lease and tenure else None

    def _drop(self) -> None:
        self.lease = self._tenure = None
