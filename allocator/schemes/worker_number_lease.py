"""THE LEASE RULE: who may use which worker number of a space, and until when.

Two promises. No two processes hold one number of a space at one moment. And no two of them use one number in the same
second of their wall clocks, so the ids of any generator made of time and number differ, also where it counts seconds.

A number that was never leased is added as a row. Any other may be taken when its row says so:

    released        its holder gave it back
    ended           one more length has passed since its end, by the database's clock and the claimant's wall clock

and in both cases only if the claimant's wall clock is past the second of the row's `used_until_ms`, the last
millisecond in which the holder may have used it. The row must still have the holder and the count of renewals that
were read.

The holder stops by itself, one length after it *sent* its last request that was granted, by two clocks: its own, which
runs on while the machine sleeps, and the wall clock, which is all that a paused virtual machine sees. It also stops
where the wall clock is before the begin of the lease. So neither a client's clock nor a step of the database's clock by
up to one length gives a number to two. A longer step forward of the database's clock can, if the wall clock of the
holder is behind or that of the claimant ahead as well.

After a failover the newest leases and renewals may be forgotten. A holder whose number is still its own in the rows
renews at once, while its lease has not ended by its own two clocks: nobody has taken the number before that, not even
in what was forgotten. Nobody takes or adds a number until three lengths after the move was seen, and at least three of
the usual length: one until a forgotten holder has stopped, half of one by which the wall clock of a holder may be ahead
of the database's, and the rest for two servers whose clocks differ, or an old server that still answers.

The first lease of a space fixes its length and format for ever, so that the rows say how long to wait.

In a fleet each slot leases its own part of the numbers. One that was leased before the fleet was made, and is of
another slot now, is never renewed; a new slot leases none for three lengths, as after a failover.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import NamedTuple

from allocator.errors import AllocatorError, DatabaseUnavailable, InvalidSetting, LeaseLost, NodeIdsExhausted
from allocator.schemes.shared.argument_checks import check_seconds, check_tag, check_whole
from allocator.schemes.shared.residues import Residue
from allocator.schemes.shared.retry_pace import RETRY_PAUSE, Wait

BITS = 10
"""The default width: that of most snowflakes."""
MAX_BITS = 31
"""Numbers are stored in a signed 32-bit column."""
SECONDS = 60.0
"""The usual length of a lease."""
MIN_SECONDS = 1.0
"""`TICK_MS`: a number is not leased again within one second, so a shorter lease frees none sooner."""
MAX_SECONDS = 600.0
"""A failover stops new leases for three lengths, and who leases all numbers of a space blocks it for two."""
SNOWFLAKE = "@snowflake"
"""The space of our own snowflakes. No space of a user's is spelled so."""
SNOWFLAKE_SECONDS = 20.0
"""The usual length there: a new process has no snowflake for three of it after a failover."""
RENEWALS = 3
"""Renewals in the length of a lease: two may fail before it ends."""
RETRIES = 12
"""A failed renewal is repeated after a second, or sooner: 12 tries must fit into a short lease."""
TICK_MS = 1000
"""The longest tick of any generator: uid-generator and CosId can count whole seconds."""
AFTER_MOVE = 3
"""Lengths of a lease to wait after a failover; the docstring of this module adds them up."""


@dataclass(frozen=True, slots=True)
class NumberClaim:
    """A request for any number of a space. `wall_ms` is the claimant's wall clock, read before the request.

    format: what else all holders must have in common: layout and epoch of a snowflake.
    """

    space: str
    bits: int
    length_ms: int
    wall_ms: int
    holder: str
    host: str = ""
    process: int = 0
    format: str = ""

    @property
    def wait_ms(self) -> int:
        """How long nobody takes a number after a failover."""
        usual = SNOWFLAKE_SECONDS if self.space == SNOWFLAKE else SECONDS
        return AFTER_MOVE * max(self.length_ms, round(1000 * usual))

    def checked(self) -> NumberClaim:
        check_tag(self.space)
        check_whole("bits", self.bits, 1, MAX_BITS)
        length_of(self.length_ms / 1000)
        return self


@dataclass(frozen=True, slots=True)
class NumberRow:
    """A number that was leased. `until_ms` is of the database's clock, `used_until_ms` of the holder's wall clock."""

    number: int
    bits: int
    length_ms: int
    holder: str
    renewals: int
    until_ms: int
    used_until_ms: int
    host: str
    process: int
    format: str = ""

    @property
    def who(self) -> str:
        return f"{self.host} (process {self.process})" if self.host else "a client that named no host"


class NumberLease(NamedTuple):
    """A number and its holder, to renew and release it."""

    space: str
    number: int
    holder: str
    length_ms: int


def length_of(seconds: object) -> int:
    """The length of a lease in milliseconds."""
    return round(1000 * check_seconds("seconds", seconds, MIN_SECONDS, MAX_SECONDS))


def lost(lease: NumberLease) -> LeaseLost:
    return LeaseLost(
        f"number {lease.number} of space {lease.space!r} is no longer this process's: its lease ended, another process "
        "has it, or the clock of this machine is ahead of the database's by over half of the lease"
    )


def is_over(row: NumberRow, at_ms: int) -> bool:
    """Whether the number is free. `at_ms` is the database's clock."""
    return not row.holder or at_ms > row.until_ms + row.length_ms


def is_free(row: NumberRow, wall_ms: int, at_ms: int) -> bool:
    return wall_ms // TICK_MS > free_after(row) // TICK_MS and is_over(row, at_ms)


def free_after(row: NumberRow) -> int:
    """The last millisecond of a claimant's wall clock in which it may not take the number.

    Of an end that only the database's clock tells, the wall clock must tell too: one clock may be wrong.
    """
    return row.used_until_ms + (row.length_ms if row.holder else 0)


def free_numbers(rows: Mapping[int, NumberRow], claim: NumberClaim, residue: Residue, at_ms: int) -> Iterator[int]:
    """The numbers of a database that this claimant may take, the smallest first."""
    for number in residue.workers(claim.bits):
        row = rows.get(number)
        if row is None or is_free(row, claim.wall_ms, at_ms):
            yield number


def choose(
    rows: Collection[NumberRow], claim: NumberClaim, residue: Residue, at_ms: int, spread: int, pick: int
) -> NumberRow | int:
    """The number to take: its row, or the number itself if it has none.

    residue: of the database, to which a part of the numbers belongs.
    spread: how many of the smallest free numbers to choose from; `pick` is a random number. The first attempt takes the
        smallest, later ones spread, so that many processes which start together do not meet again and again. A space
        begins with its smallest number, so that two processes with different settings cannot both begin it.

    Raises `InvalidSetting` where the space is held with other settings, and `NodeIdsExhausted`.
    """
    check_alike(rows, claim, at_ms)
    if not (ours := residue.workers(claim.bits)):
        raise InvalidSetting(
            f"space {claim.space!r} has {1 << claim.bits} numbers, and slot {residue.offset} of {residue.step} none of "
            f"them; lease at least {(residue.step - 1).bit_length()} bits"
        )
    by_number = {row.number: row for row in rows if row.number in ours}
    free = list(islice(free_numbers(by_number, claim, residue, at_ms), spread if by_number else 1))
    if not free:
        raise exhausted(by_number.values(), claim, at_ms)
    number = free[pick % len(free)]
    return by_number.get(number, number)


def check_alike(rows: Iterable[NumberRow], claim: NumberClaim, at_ms: int) -> None:
    """Raise `InvalidSetting` where the space has other settings: another width while held, anything else for ever."""
    for row in rows:
        if (row.length_ms, row.format) != (claim.length_ms, claim.format):
            raise InvalidSetting(
                f"space {claim.space!r} has {settings_of(row)}, but this process asks for {settings_of(claim)}; all "
                f"processes of a space must use the same. To change them, stop all for {claim.wait_ms // 1000} s, make "
                "sure that no id of the old format is in use, and delete the rows of the space from allocator_lease"
            )
        if row.bits != claim.bits and not is_over(row, at_ms):
            raise InvalidSetting(
                f"space {claim.space!r} is leased with bits={row.bits}, by {row.who}, but this process asks for "
                f"bits={claim.bits}; all processes of a space must use the same: stop all others first, or name "
                "another space, for ids of another column"
            )


def settings_of(one: NumberRow | NumberClaim) -> str:
    return f"leases of {one.length_ms / 1000:g} s" + f" and the format {one.format}" * bool(one.format)


def check_clock(claim: NumberClaim, at_ms: int) -> None:
    """Raise `InvalidSetting` where the claimant's wall clock is too far ahead of the database's."""
    if not is_near(claim.wall_ms, claim.length_ms, at_ms):
        raise InvalidSetting(
            f"the clock of this machine is {(claim.wall_ms - at_ms) / 1000:.1f} s ahead of the database's, and may be "
            f"{claim.length_ms / 2000:g} s ahead, half of the lease; set both clocks"
        )


def is_near(wall_ms: int, length_ms: int, at_ms: int) -> bool:
    return wall_ms <= at_ms + length_ms // 2


def check_moved(moved_at_ms: int, claim: NumberClaim, at_ms: int) -> None:
    """Raise `DatabaseUnavailable` while holders that a failover forgot may still use their numbers."""
    left = moved_at_ms + claim.wait_ms - min(claim.wall_ms - TICK_MS, at_ms)
    if moved_at_ms and left >= 0:
        raise DatabaseUnavailable(
            f"the database moved to another server, which may have forgotten who holds numbers of space "
            f"{claim.space!r}; numbers are leased again in {left / 1000:.0f} s, and renewed meanwhile"
        )


def exhausted(rows: Collection[NumberRow], claim: NumberClaim, at_ms: int) -> AllocatorError:
    held = [row for row in rows if row.holder]
    holders = sorted({row.who for row in held})
    named = ", ".join(holders[:5]) + (" and others" if len(holders) > 5 else "")
    ends = min(max(end_of(row, at_ms), (free_after(row) // TICK_MS + 1) * TICK_MS - claim.wall_ms) for row in rows)
    late = (at_ms - claim.wall_ms) / 1000
    clock = f"; the clock of this machine is {late:.0f} s behind the database's" * (1000 * late > claim.length_ms)
    what = f"all {len(rows)} numbers of space {claim.space!r} are held, by {named}; unless one is given back,"
    if back := len(rows) - len(held):
        others = f"{len(held)} are held, by {named}; " if held else ""
        what = f"no number of space {claim.space!r} is free: {others}{back} given back a moment ago;"
    return NodeIdsExhausted(f"{what} the next is free in {-(-ends // 1000)} s{clock}")


def end_of(row: NumberRow, at_ms: int) -> int:
    """Milliseconds until the number is free, by the database's clock."""
    return row.until_ms + row.length_ms - at_ms if row.holder else 0


class Clocks(NamedTuple):
    """One reading: seconds of the process's own clock, and milliseconds of the wall clock."""

    own: float
    wall_ms: int


class Renewal(NamedTuple):
    """Ask the database for a renewal, which counts from `asked`."""

    asked: Clocks


class Tenure:
    """How long a holder may use its number, by its own two clocks. Once `lost` it stays so. Callers hold a lock."""

    __slots__ = ("_ahead", "_end", "_from_ms", "_retry_at", "_until_ms", "length_ms", "lost", "used_ms")

    def __init__(self, length_ms: int, asked: Clocks) -> None:
        """asked: the clocks before the request that leased the number was sent."""
        self.length_ms = length_ms
        self.lost = False
        self._from_ms = self.used_ms = asked.wall_ms
        self._retry_at = asked.own
        self._ahead = asked.wall_ms - asked.own * 1000
        self._extend(asked)

    def check_answered(self, now: Clocks) -> None:
        """Raise `DatabaseUnavailable` where the answer with the lease came after its end."""
        if self.left(now) <= 0:
            raise DatabaseUnavailable(f"the lease of {self.length_ms / 1000:g} s had ended when the answer came")

    def want(self, now: Clocks) -> Renewal | Wait | None:
        """The next step: a `Renewal`, after which the next one waits, a `Wait`, or None once the number is lost."""
        left = self.left(now)
        if left <= 0:
            return None
        until = max(self.due(now), self._retry_at - now.own)
        if until > 0:
            return Wait(min(until, left))
        self._retry_at = now.own + min(RETRY_PAUSE, self.length_ms / 1000 / RETRIES)
        return Renewal(now)

    def _extend(self, asked: Clocks) -> None:
        self._end, self._until_ms = asked.own + self.length_ms / 1000, asked.wall_ms + self.length_ms

    def renewed(self, asked: Clocks, now: Clocks) -> None:
        """Record a renewal that was granted. One whose answer came after the end is too late."""
        if self.left(now) > 0:
            self._extend(asked)

    def failed(self, error: BaseException) -> None:
        """Record a renewal that failed. After any error but `LeaseLost` it may be repeated until the end."""
        if isinstance(error, LeaseLost):
            self.lost = True

    def left(self, now: Clocks) -> float:
        """The seconds left; at most 0 when it is lost."""
        left = min(self._end - now.own, (self._until_ms - now.wall_ms) / 1000)
        if left <= 0 or now.wall_ms < self._from_ms:
            self.lost = True
        if self.lost:
            return min(left, 0.0)
        # It may have stepped back since ids were made: before that it went on as long as the own clock.
        self.used_ms = max(self.used_ms, now.wall_ms, ceil(self._ahead + now.own * 1000))
        self._ahead = now.wall_ms - now.own * 1000
        return left

    def due(self, now: Clocks) -> float:
        """The seconds until the next renewal."""
        return self.left(now) - self.length_ms / 1000 * (1 - 1 / RENEWALS)


class Space(NamedTuple):
    """`held` are the numbers that no other process may take yet; `bits` are those of the newest lease."""

    name: str
    bits: int
    length_ms: int
    held: list[NumberRow]
    format: str = ""
    free: int = 0


def spaces_of(rows: Mapping[str, Sequence[NumberRow]], residue: Residue, at_ms: int) -> list[Space]:
    """The spaces of a database; `at_ms` is its clock. Each space has at least one row."""
    spaces = []
    for name, of_space in rows.items():
        newest = max(of_space, key=lambda row: row.until_ms)
        held = [row for row in of_space if not is_over(row, at_ms)]
        ours = residue.workers(newest.bits)
        free = len(ours) - sum(row.number in ours for row in held)
        spaces.append(Space(name, newest.bits, newest.length_ms, held, newest.format, free))
    return spaces


def together(spaces: Iterable[Space]) -> list[Space]:
    """The spaces of several databases, each of which has a part of the numbers."""
    found: dict[str, Space] = {}
    for one in spaces:
        known = found.get(one.name)
        found[one.name] = one._replace(held=known.held + one.held, free=known.free + one.free) if known else one
    return [found[name] for name in sorted(found)]
