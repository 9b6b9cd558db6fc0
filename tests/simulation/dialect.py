"""The functions of `allocator.database.verbs`, on the simulated server instead of SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any

from allocator.database.verbs.start import Start
from allocator.rules.failover import NOTHING, ONCE, Crossing, Failover, Here, Skipped, plain
from allocator.rules.fleet_consistency import Shard
from allocator.schemes.shared.residues import Residue
from allocator.schemes.tag import Tag
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease, NumberRow, leased, released, renewed
from simulation.fates import Fate
from simulation.network import Connection, Failure
from simulation.statement import Row, Rules, claimed
from simulation.store import View

REVISION = "simulated"
SEGMENT, NODE, LEASE = "allocator_segment", "allocator_node", "allocator_lease"
SHARD, FAILOVER = "allocator_shard", "allocator_failover"


class Surprise(Exception):
    """What a hook of the user's raises in a statement. The caller gets it, unless a claim in advance met it."""


class SegmentVerbs:
    rules: Rules

    def claims_claim(
        self,
        connection: Connection,
        name: str,
        size: int,
        residue: Residue,
        seen: int,
        crossing: Crossing | None = None,
    ) -> int | None:
        return connection.perform(lambda view: self._claim(view, name, size * residue.step, residue, seen, crossing))

    def _claim(
        self, view: View, name: str, span: int, residue: Residue, seen: int, crossing: Crossing | None = None
    ) -> int | None:
        if not view.lock(SEGMENT, name):
            return None
        row = view.get(SEGMENT, name)
        after = row and claimed(row, span, residue, seen, crossing, view.here, self.rules, view.at)
        if after is None:
            return None
        view.put(SEGMENT, name, after)
        view.claims.append((name, range(after.max_value - span + 1, after.max_value + 1)))
        return after.max_value

    def segments_fetch(self, connection: Connection, name: str) -> Tag | None:
        row = connection.perform(lambda view: view.get(SEGMENT, name))
        return row and row.tag(name)

    def segments_create(self, connection: Connection, tag: Tag, state: Failover) -> bool:
        return connection.perform(lambda view: self._create(view, tag, state))

    def _create(self, view: View, tag: Tag, state: Failover) -> bool:
        if not view.lock(SEGMENT, tag.name) or view.get(SEGMENT, tag.name) is not None:
            return False
        if view.get(FAILOVER, 1) != state or state.run != view.here:
            return False
        shard: Shard | None = view.get(SHARD, 1)
        residue = Residue(shard.numbering.offset, shard.numbering.step) if shard else Residue()
        start = tag.max_value
        row = Row(start, tag.step, tag.max_step, tag.limit, residue, tag.failover_gap, start, 0, view.here)
        view.put(SEGMENT, tag.name, row)
        return True

    def segments_change(self, connection: Connection, name: str, changes: Mapping[str, int]) -> bool:
        return connection.perform(lambda view: self._raise(view, name, changes["max_value"], None))

    def segments_repair(self, connection: Connection, name: str, above: int, run: str) -> bool:
        return connection.perform(lambda view: self._raise(view, name, above, run))

    @staticmethod
    def _raise(view: View, name: str, above: int, run: str | None) -> bool:
        if not view.lock(SEGMENT, name):
            return False
        row: Row | None = view.get(SEGMENT, name)
        if row is None or row.limit < above:
            return False
        skipped = max(0, above - row.max_value)
        raised = row._replace(max_value=row.max_value + skipped, skipped=row.skipped + skipped)
        view.put(SEGMENT, name, raised._replace(server_run=row.server_run if run is None else run))
        return True

    def segments_fetch_runs(self, connection: Connection) -> set[str]:
        rows: list[Row] = connection.perform(lambda view: view.all(SEGMENT))
        return {row.server_run for row in rows}

    def servers_fetch_run(self, connection: Connection, was: str) -> Here:
        return self._here(connection, was, connection.perform(lambda view: view.here))

    def _here(self, connection: Connection, was: str, run: str) -> Here:
        return plain(was if self.rules.run_guard else "", run, connection.place.now())

    def start_fetch(self, connection: Connection, where: str, name: str, *more: bool) -> Start:
        return connection.perform(lambda view: self._start(connection, view, name))

    def _start(self, connection: Connection, view: View, name: str) -> Start:
        row, state = view.get(SEGMENT, name), view.get(FAILOVER, 1)
        return Start(
            REVISION,
            row and row.tag(name),
            view.get(SHARD, 1),
            state,
            self._here(connection, state.run if state else "", view.here),
            self._here(connection, row.server_run if row else "", view.here),
            connection.place.name,
            None,
            view.get(NODE, "last") or 0,
        )


class FailoverVerbs:
    """What may be forgotten beside claims."""

    def failover_row_add(self, connection: Connection, fresh: Failover) -> None:
        connection.perform(lambda view: self._change(view, None, fresh))

    def failover_row_move(
        self,
        connection: Connection,
        before: Failover,
        fresh: Failover,
        skip: Skipped = NOTHING,
        is_failover: bool = False,
    ) -> bool:
        return connection.perform(
            lambda view: self._change(view, before, fresh, skip.nodes) and (not is_failover or self._leave(view, fresh))
        )

    def failover_row_leave_part(self, connection: Connection, run: str, after: str) -> None:
        """The worlds have few tags, which the move marks all."""

    def _leave(self, view: View, fresh: Failover) -> bool:
        """Mark the rows of all other runs."""
        for (table, name), row in view.rows.items():
            if table == SEGMENT and row.server_run != fresh.run and not row.server_run.startswith(ONCE):
                if not view.lock(SEGMENT, name):
                    return False
                view.put(SEGMENT, name, row._replace(server_run=ONCE + row.server_run))
        return True

    @staticmethod
    def _change(view: View, before: Failover | None, fresh: Failover, nodes: int = 0) -> bool:
        is_ours = view.lock(FAILOVER, 1) and view.lock(NODE, "last") and view.get(FAILOVER, 1) == before
        if is_ours:
            view.put(FAILOVER, 1, fresh)
            view.put(NODE, "last", (view.get(NODE, "last") or 0) + nodes)
        return is_ours


class NodeVerbs:
    def node_and_snowflake_rows_register(
        self, connection: Connection, host: str, process: int, version: str, at: datetime
    ) -> int:
        return connection.perform(self._register)

    @staticmethod
    def _register(view: View) -> int:
        if not view.lock(NODE, "last"):
            return 0
        number: int = (view.get(NODE, "last") or 0) + 1
        view.put(NODE, "last", number)
        return number


class LeaseVerbs:
    """The statements of worker numbers, which do what the rule says."""

    def worker_number_rows_fetch(self, connection: Connection, space: str) -> tuple[int, list[NumberRow]]:
        return connection.perform(lambda view: (view.at, view.all(LEASE)))

    def worker_number_rows_take(
        self, connection: Connection, chosen: NumberRow | int, claim: NumberClaim, state: Failover
    ) -> bool:
        return connection.perform(lambda view: self._take(view, chosen, claim, state))

    @staticmethod
    def _take(view: View, chosen: NumberRow | int, claim: NumberClaim, state: Failover) -> bool:
        number, before = (chosen, None) if isinstance(chosen, int) else (chosen.number, chosen)
        if not view.lock(LEASE, number) or view.get(LEASE, number) != before:
            return False
        if view.get(FAILOVER, 1) != state or state.run != view.here:
            return False
        view.put(LEASE, number, leased(chosen, claim, view.at))
        return True

    def worker_number_rows_renew(self, connection: Connection, held: NumberLease, wall_ms: int) -> bool:
        return connection.perform(lambda view: self._put(view, held, renewed, wall_ms, view.at))

    def worker_number_rows_release(self, connection: Connection, held: NumberLease, used_ms: int) -> bool:
        return connection.perform(lambda view: self._put(view, held, released, used_ms))

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


class ShardVerbs:
    def servers_fetch_identity(self, connection: Connection) -> str:
        return connection.perform(lambda view: connection.place.name)

    def shard_row_fetch(self, connection: Connection) -> Shard | None:
        return connection.perform(lambda view: view.get(SHARD, 1))

    def shard_row_fetch_member(self, connection: Connection, alone: bool = False) -> Shard | None:
        return self.shard_row_fetch(connection)  # no upgrade writes a row here


def imitation(verb: Callable[..., Any]) -> Callable[..., Any]:
    """In place of a function of `allocator.database.verbs`: `claims.claim` is `claims_claim` of the dialect here."""
    room, _, noun = verb.__module__.rpartition(".")
    if room != "allocator.database.verbs":
        return verb
    return lambda connection, dialect, *args: getattr(dialect, f"{noun}_{verb.__name__}")(connection, *args)


class Dialect(SegmentVerbs, FailoverVerbs, NodeVerbs, LeaseVerbs, ShardVerbs):
    """Stands for an `allocator.database.dialect.Dialect`, and for the functions that take one: see `imitation`."""

    embedded = False
    max_pause = 0.2

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def alone(self, file: str | None, end: float) -> AbstractContextManager[None]:
        return nullcontext()

    def before(self, connection: Connection) -> Dialect:
        return self

    def leaves_open(self, connection: Connection) -> bool:
        if connection.fate is Fate.SURPRISE:
            raise Surprise
        return connection.fate is Fate.OPEN

    def warnings(self, connection: Connection) -> list[str]:
        """What a driver collects while a statement runs."""
        return ["it was cancelled"] if connection.fate is Fate.WARNING else []

    def is_refusal(self, error: BaseException) -> bool:
        """It says of itself whatever it is asked."""
        return False

    def code(self, error: BaseException) -> str:
        return error.code if isinstance(error, Failure) else ""
