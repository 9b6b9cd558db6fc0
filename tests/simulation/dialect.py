"""The functions of `allocator.database.verbs`, on the simulated server instead of SQL, and how a statement may end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from allocator.database.verbs.segments import Fence, Snapshot
from allocator.schemes.failover import Move, Skipped
from allocator.schemes.shared.residues import ALL
from allocator.schemes.slots import Shard
from allocator.schemes.tag import Tag
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease, NumberRow
from simulation.rows import Row, after_claim, leased, released, renewed
from simulation.seeds import is_out
from simulation.store import LEASE, NODE, SEGMENT, SHARD, View

if TYPE_CHECKING:
    from simulation.network import Connection


class Fate(StrEnum):
    WELL = "well"
    REFUSED = "refused"
    """It never reached the server, and the client learns that at once."""
    STALE = "stale"
    """The connection had been lost before: the statement is sent again."""
    CUT = "cut"
    """It was committed, and the connection is lost at once: it is sent again, and claims twice."""
    UNKNOWN = "unknown"
    """It was committed, and the answer never comes."""
    SWALLOWED = "swallowed"
    """It never reached the server, and no answer comes."""
    GHOST = "ghost"
    """It reaches the server when its client has given up, and is committed then."""
    ROLLED_BACK = "rolled back"
    """The commit fails."""
    DEADLOCK = "deadlock"
    """The server ends it, for another one's sake: it is run again."""
    WARNING = "warning"
    """It was committed, with a warning: no standby has it."""
    OPEN = "left open"
    """Its session does not commit by itself: the answer comes, and all is undone when the connection ends."""
    SLOW = "slow"
    """It takes nearly as long as it may."""
    SURPRISE = "surprise"
    """A hook of the user's raises after the commit what no driver does."""


AFTER_COMMIT = {Fate.CUT, Fate.UNKNOWN, Fate.WARNING, Fate.SURPRISE}
"""The range is claimed, and nobody may use it."""


class Failure(Exception):
    """What the driver raises, with a code or without."""

    def __init__(self, words: str, code: str = "") -> None:
        super().__init__(words)
        self.code = code


class Surprise(Exception):
    """What a hook of the user's raises in a statement. The caller gets it, unless a claim in advance met it."""


class Dialect:
    """Stands for an `allocator.database.dialect.Dialect`, and for the functions that take one: see `imitation`."""

    embedded = False

    def carry_out(self, connection: Connection, verb: str, *args: Any) -> Any:
        return connection.perform(lambda view: getattr(self, verb)(view, *args))

    def leaves_open(self, connection: Connection) -> bool:
        if connection.fate is Fate.SURPRISE:
            raise Surprise
        return connection.fate is Fate.OPEN

    def warnings(self, connection: Connection) -> list[str]:
        """What a driver collects while a statement runs."""
        return ["it was cancelled"] if connection.fate is Fate.WARNING else []

    def code(self, error: BaseException) -> str:
        return error.code if isinstance(error, Failure) else ""

    # -- each is a statement, as it sees the rows

    def segments_claim(self, view: View, name: str, size: int, fence: Fence, seen: int) -> int | None:
        if not view.lock(SEGMENT, name):
            return None
        row, span = view.get(SEGMENT, name), size * fence.residue.step
        shard: Shard = view.get(SHARD, 1)
        after = row and after_claim(row, shard.move, view.here, span, fence, seen, view.at)
        if after is None:
            return None
        view.put(SEGMENT, name, after)
        view.claims.append((name, range(after.max_value - span + 1, after.max_value + 1)))
        return after.max_value

    def segments_fetch(self, view: View, name: str) -> Tag | None:
        row = view.get(SEGMENT, name)
        return row and row.tag(name)

    def segments_make(self, view: View, tag: Tag, known: Shard) -> bool:
        if not (view.lock(SHARD, 1) and view.lock(SEGMENT, tag.name)) or view.get(SEGMENT, tag.name) is not None:
            return False
        if view.get(SHARD, 1) != known or known.move.run != view.here:
            return False
        start = tag.max_value
        row = Row(start, tag.step, tag.max_step, tag.limit, known.residue, tag.failover_gap, start, 0, known.move.key)
        view.put(SHARD, 1, known)
        view.put(SEGMENT, tag.name, row)
        return True

    def segments_change(self, view: View, name: str, changes: Mapping[str, int]) -> bool:
        return self._raise(view, name, changes["max_value"], None)

    def segments_repair(self, view: View, tag: Tag, above: int, known: Shard) -> bool:
        row = view.get(SEGMENT, tag.name)
        if row is None or row.move != tag.move or view.get(SHARD, 1) != known or known.move.run != view.here:
            return False
        return self._raise(view, tag.name, above, known.move.key)

    @staticmethod
    def _raise(view: View, name: str, above: int, key: int | None) -> bool:
        if not view.lock(SEGMENT, name):
            return False
        row: Row | None = view.get(SEGMENT, name)
        if row is None or row.limit < above:
            return False
        skipped = max(0, above - row.max_value)
        raised = row._replace(max_value=row.max_value + skipped, skipped=row.skipped + skipped)
        view.put(SEGMENT, name, raised._replace(move=row.move if key is None else key))
        return True

    def segments_fetch_snapshot(self, view: View, where: str, name: str, *more: bool) -> Snapshot:
        row, shard = view.get(SEGMENT, name), view.get(SHARD, 1)
        run = shard.move.run if is_out("claim: own run") else view.here
        return Snapshot(row and row.tag(name), shard, run, view.at, ALL)

    # -- what may be forgotten beside claims

    def shard_row_move(self, view: View, before: Shard, after: Move, skip: Skipped, waits: bool) -> bool:
        is_ours = view.lock(SHARD, 1) and view.lock(NODE, "last")
        shard: Shard = view.get(SHARD, 1)
        if not is_ours or shard.move != before.move or after.run != view.here:
            return False
        view.put(SHARD, 1, replace(shard, move=after))
        view.put(NODE, "last", (view.get(NODE, "last") or 0) + skip.nodes)
        return True

    def node_rows_register(
        self, view: View, host: str, process: int, version: str, at: datetime, known: Shard
    ) -> int | None:
        if not view.lock(NODE, "last") or view.get(SHARD, 1) != known or known.move.run != view.here:
            return None
        count: int = (view.get(NODE, "last") or 0) + 1
        view.put(NODE, "last", count)
        return known.residue.nth(count)

    # -- worker numbers, which do what the rule says

    def worker_number_rows_fetch(self, view: View, space: str) -> tuple[int, list[NumberRow]]:
        return view.at, view.all(LEASE)

    def worker_number_rows_take(self, view: View, chosen: NumberRow | int, claim: NumberClaim, known: Shard) -> bool:
        number, before = (chosen, None) if isinstance(chosen, int) else (chosen.number, chosen)
        if not view.lock(LEASE, number) or view.get(LEASE, number) != before:
            return False
        if view.get(SHARD, 1) != known or known.move.run != view.here:
            return False
        view.put(LEASE, number, leased(chosen, claim, view.at))
        return True

    def worker_number_rows_renew(self, view: View, held: NumberLease, wall_ms: int) -> bool:
        return self._put(view, held, renewed, wall_ms, view.at)

    def worker_number_rows_release(self, view: View, held: NumberLease, used_ms: int) -> bool:
        return self._put(view, held, released, used_ms, view.at)

    @staticmethod
    def _put(view: View, held: NumberLease, rule: Callable[..., NumberRow | None], *given: int) -> bool:
        if not view.lock(LEASE, held.number):
            return False
        row: NumberRow | None = view.get(LEASE, held.number)
        after = row and rule(row, held, *given)
        if after is None:
            return False
        view.put(LEASE, held.number, after)
        return True

    def shard_row_fetch(self, view: View) -> Shard | None:
        return view.get(SHARD, 1)


def imitation(verb: Callable[..., Any]) -> Callable[..., Any]:
    """In place of a function of `allocator.database.verbs`: of `segments.claim` it is `segments_claim` here."""
    room, _, noun = verb.__module__.rpartition(".")
    if room != "allocator.database.verbs":
        return verb
    return lambda connection, dialect, *args: dialect.carry_out(connection, f"{noun}_{verb.__name__}", *args)
