"""Rules broken on purpose, each as small as it can be: the simulator must find every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import allocator.database.store
from allocator.database.store import Database
from allocator.errors import DatabaseUnavailable
from allocator.generators.supply import Supply
from allocator.schemes import failover
from allocator.schemes.segment_refill import Segments
from allocator.schemes.shared.residues import Residue, Seen
from allocator.schemes.shared.retry_pace import Pace
from allocator.schemes.snowflake import LeasedSnowflake, SnowflakeBlocks
from allocator.schemes.worker_number_lease import Clocks
from simulation.dialect import SEGMENT, Dialect
from simulation.fates import Fate
from simulation.network import Connection, Statement
from simulation.patches import Patches, patched
from simulation.statement import Row, Rules
from simulation.store import View
from simulation.variant import Variant


class AnswersFirst(Statement):
    """Says how it went before it has committed."""

    def _begin(self) -> None:
        begun = self._server.begin(self._act, self._again, self._place.now())
        if begun is not None:
            self._claims = begun[0].claims
            self._place.scheduler.after(self._place.latency(), self._commit, *begun)
            self._answer(begun[1])


class ReadsFirst(Dialect):
    """SELECT, then UPDATE with what was read."""

    def carry_out(self, connection: Connection, verb: str, *args: Any) -> Any:
        if verb != "segments_claim":
            return super().carry_out(connection, verb, *args)
        name, size, terms, _ = args
        read = connection.perform(lambda view: view.get(SEGMENT, name))
        return connection.perform(lambda view: self._write(view, name, size * terms.residue.step, read))

    def _write(self, view: View, name: str, span: int, row: Row | None) -> int | None:
        if not view.lock(SEGMENT, name) or row is None:
            return None
        after = row._replace(max_value=row.max_value + span)
        if after.max_value > row.limit:
            return None
        view.put(SEGMENT, name, after)
        view.claims.append((name, range(row.max_value + 1, after.max_value + 1)))
        return after.max_value


class GivesBack(Dialect):
    """Writes the second half of each claim back, where nobody has claimed since."""

    def carry_out(self, connection: Connection, verb: str, *args: Any) -> Any:
        last = super().carry_out(connection, verb, *args)
        if verb == "segments_claim" and last is not None and args[1] > 1:
            name, size, terms, _ = args
            connection.perform(lambda view: self._give_back(view, name, last, size * terms.residue.step // 2))
        return last

    def _give_back(self, view: View, name: str, last: int, span: int) -> None:
        if view.lock(SEGMENT, name) and view.get(SEGMENT, name).max_value == last:
            view.put(SEGMENT, name, view.get(SEGMENT, name)._replace(max_value=last - span))


class IgnoresWarnings(Dialect):
    def warnings(self, connection: Connection) -> list[str]:
        return []


class TrustsTheSession(Dialect):
    """Believes that a claim which was answered is committed."""

    def leaves_open(self, connection: Connection) -> bool:
        return connection.fate is not Fate.OPEN and super().leaves_open(connection)


def adopting(database: Database, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
    """A claim that, where nobody knows how it ended, looks whether the row has moved."""
    try:
        return claim_segment(database, name, size, seen, exact=exact)
    except DatabaseUnavailable:
        tag = database.fetch_tag(name)
        if tag is None or tag.max_value < size:
            raise
        return tag.residue.ids(tag.max_value, size)


claim_segment = Database.claim_segment


def any_claim(pace: Pace[Any], request: object) -> bool:
    """Takes what a claim brings that was given up."""
    pace.under_way = pace.failure = None
    return True


def for_ever(core: LeasedSnowflake, now: Clocks) -> float:
    """The lease never ends."""
    return 0.0 if core.lease is None else 1.0


take = SnowflakeBlocks.take


def starting_over(blocks: SnowflakeBlocks, tick: int) -> range:
    """The sequence begins at 0 again where the clock went back."""
    blocks.last = min(blocks.last, tick - 1)
    return take(blocks, tick)


def forgets_the_mark(core: Segments, residue: Residue, last: int) -> None:
    """Remembers nothing of what was seen."""


def one_too_many(residue: Residue, last: int, size: int) -> range:
    first = last - size * residue.step + 1
    return range(first + (residue.offset - first) % residue.step, last + 1 + residue.step, residue.step)


def goes_on_serving(supply: Supply) -> None:
    """Of an allocator that is closed."""


def keeping_the_key(
    before: failover.Move, residue: Residue, run: str, key: int, at: int, wall_ms: int
) -> failover.Move:
    return failover.moved(before, residue, run, before.key, at, wall_ms)


class Control(NamedTuple):
    """shows: of what the violation speaks. patches: of the real code, by place and name.
    seed: of a world in which it shows.
    """

    shows: str
    variant: Callable[[], Variant] = Variant
    patches: Patches = {}
    seed: int = 0


def unguarded(**rules: bool) -> Callable[[], Variant]:
    return lambda: Variant(rules=Rules(**rules))


TWICE = "has already"
FOREIGN = "never committed for it"
CONTROLS: dict[str, Control] = {
    "memory before commit": Control(
        f"{FOREIGN}|{TWICE}|nothing was forgotten|did not take", lambda: Variant(statement=AnswersFirst)
    ),
    "adopting a range of which nobody knows": Control(FOREIGN, patches={(Database, "claim_segment"): adopting}, seed=2),
    "giving a range back": Control("was lowered", lambda: Variant(dialect=GivesBack)),
    "no renewal after a fork": Control("not its own|twice", lambda: Variant(fork_hooks=False), seed=6),
    "a lease that does not end": Control("not in its lease", patches={(LeasedSnowflake, "left"): for_ever}, seed=5),
    "the guard of what was seen off": Control(
        TWICE, unguarded(seen_guard=False, run_guard=False), {(Segments, "record_seen"): forgets_the_mark}, seed=3
    ),
    "the failover guard off": Control(TWICE, unguarded(run_guard=False), seed=12),
    "a gap of nothing": Control(
        f"{TWICE}|nothing was forgotten", patches={(failover, "gap"): lambda tag, reach, at: 0}, seed=70
    ),
    "a server that comes back is known": Control(
        f"{TWICE}|nothing was forgotten", patches={(allocator.database.store, "moved"): keeping_the_key}, seed=136
    ),
    "a restart that counts as another server": Control(
        "no server was replaced|a server was replaced, and none was", lambda: Variant(restarts_count=True), seed=7
    ),
    "a promotion that counts as a restart": Control(TWICE, lambda: Variant(promotions_unseen=True), seed=19),
    "a disk put back and nobody told": Control(
        f"{TWICE}|nothing was forgotten", lambda: Variant(operators_tell=False), seed=38
    ),
    "SELECT, then UPDATE": Control(f"was lowered|{TWICE}", lambda: Variant(dialect=ReadsFirst), seed=1),
    "a claim that ends late is taken": Control(
        "are missing|came after", patches={(Pace, "succeeded"): any_claim}, seed=85
    ),
    "the limit guard off": Control("beyond its limit", unguarded(limit_guard=False), seed=4),
    "a warning at the commit ignored": Control(FOREIGN, lambda: Variant(dialect=IgnoresWarnings), seed=17),
    "a transaction that was left open ignored": Control(
        f"{FOREIGN}|{TWICE}|nothing was forgotten", lambda: Variant(dialect=TrustsTheSession), seed=7
    ),
    "one id too many": Control(FOREIGN, patches={(Residue, "ids"): one_too_many}),
    "a sequence that starts over": Control(
        "came after|twice", patches={(SnowflakeBlocks, "take"): starting_over}, seed=73
    ),
    "ids after close": Control("after it was closed", patches={(Supply, "_retire"): goes_on_serving}, seed=2),
    "a second failover that forgets the gap of the first": Control(TWICE, lambda: Variant(forgets_gaps=True), seed=314),
}


@contextmanager
def broken(control: Control) -> Iterator[Variant]:
    """For as long as this rule is broken."""
    with patched(control.patches):
        yield control.variant()
