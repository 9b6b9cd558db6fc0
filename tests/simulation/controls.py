"""Rules broken on purpose, each as small as it can be: the worlds must find every one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from sqlalchemy import TextClause, select, text

from allocator.database import store
from allocator.database.dialect import filled
from allocator.database.store import Database
from allocator.database.tables import shard
from allocator.database.verbs import node_rows, segments, shard_row, tickets, worker_number_rows
from allocator.errors import DatabaseUnavailable
from allocator.generators.supply import Supply
from allocator.schemes import failover
from allocator.schemes import worker_number_lease as lease
from allocator.schemes.segment_refill import Segments
from allocator.schemes.shared.residues import Residue, Seen
from allocator.schemes.shared.retry_pace import Pace, Wait
from allocator.schemes.snowflake import LeasedSnowflake, SnowflakeBlocks
from allocator.schemes.ticket import REPLACE
from allocator.schemes.worker_number_lease import Clocks, NumberLease, NumberRow, Renewal, Tenure
from simulation import rows, seeds, workers
from simulation.between import ENDS
from simulation.dialect import Dialect, Fate
from simulation.moves import MOVES, scene
from simulation.network import Connection, Statement
from simulation.rows import Row
from simulation.seeds import Engine
from simulation.store import SEGMENT, View
from simulation.workers import FEW, LENGTH
from simulation.world import PLANS

Broken = dict[tuple[Any, str], Any]
"""What stands for parts of the real code or of a world, by place and name."""


class Control(NamedTuple):
    """A rule that is broken. shows: of what the error of a world speaks. seed: of a world in which it shows."""

    name: str
    engine: Engine
    shows: str
    how: Broken
    seed: int = 0


def out(*words: str) -> Broken:
    return {(seeds, "OUT"): frozenset(words)}


@contextmanager
def broken(how: Broken) -> Iterator[None]:
    """For as long as these rules are broken."""
    with ExitStack() as stack:
        for (place, name), value in how.items():
            stack.enter_context(patch.object(place, name, value))
        yield


# -- the claim, the refill and the session

carry_out, leaves_open = Dialect.carry_out, Dialect.leaves_open
claim_segment, take = Database.claim_segment, SnowflakeBlocks.take


def answers_first(statement: Statement) -> None:
    """Says how it went before it has committed."""
    begun = statement._server.begin(statement._act, statement._again, statement._place.now())
    if begun is not None:
        statement._claims = begun[0].claims
        statement._place.scheduler.after(statement._place.latency(), statement._commit, *begun)
        statement._answer(begun[1])


def reads_first(dialect: Dialect, connection: Connection, verb: str, *args: Any) -> Any:
    """SELECT, then UPDATE with what was read."""
    if verb != "segments_claim":
        return carry_out(dialect, connection, verb, *args)
    name, size, terms, _ = args
    read = connection.perform(lambda view: view.get(SEGMENT, name))
    return connection.perform(lambda view: write(view, name, size * terms.residue.step, read))


def write(view: View, name: str, span: int, row: Row | None) -> int | None:
    if not view.lock(SEGMENT, name) or row is None or row.max_value + span > row.limit:
        return None
    after = row._replace(max_value=row.max_value + span)
    view.put(SEGMENT, name, after)
    view.claims.append((name, range(row.max_value + 1, after.max_value + 1)))
    return after.max_value


def gives_back(dialect: Dialect, connection: Connection, verb: str, *args: Any) -> Any:
    """Writes the second half of each claim back, where nobody has claimed since."""
    last = carry_out(dialect, connection, verb, *args)
    if verb == "segments_claim" and last is not None and args[1] > 1:
        name, size, terms, _ = args
        connection.perform(lambda view: lower(view, name, last, size * terms.residue.step // 2))
    return last


def lower(view: View, name: str, last: int, span: int) -> None:
    if view.lock(SEGMENT, name) and view.get(SEGMENT, name).max_value == last:
        view.put(SEGMENT, name, view.get(SEGMENT, name)._replace(max_value=last - span))


def trusts_the_session(dialect: Dialect, connection: Connection) -> bool:
    """Believes that a claim which was answered is committed."""
    return connection.fate is not Fate.OPEN and leaves_open(dialect, connection)


def adopting(database: Database, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
    """A claim that, where nobody knows how it ended, looks whether the row has moved."""
    try:
        return claim_segment(database, name, size, seen, exact=exact)
    except DatabaseUnavailable:
        tag = database.fetch_tag(name)
        if tag is None or tag.max_value < size:
            raise
        return tag.residue.ids(tag.max_value, size)


def any_claim(pace: Pace[Any], request: object) -> bool:
    """Takes what a claim brings that was given up."""
    pace.under_way = pace.failure = None
    return True


def for_ever(core: LeasedSnowflake, now: Clocks) -> float:
    """The lease never ends."""
    return 0.0 if core.lease is None else 1.0


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


# -- the fences of statements


def without(module: Any, name: str, words: str, by: str = "1 = 1") -> Broken:
    """The text of a statement without a condition."""
    assert words in getattr(module, name)
    return {(module, name): getattr(module, name).replace(words, by)}


def nothing(*_: Any) -> TextClause:
    return text("allocator_shard.id = 1")


def the_row_alone(connection: Any, dialect: Any, known: Any) -> TextClause:
    words = shard_row.FENCE.replace("{run} = :here", "1 = 1")
    return filled(words, "", dialect.words).bindparams(**shard_row.known_as(known))


def fenced_by(fence: Callable[..., TextClause]) -> SimpleNamespace:
    """Stands for `shard_row` in one module."""

    def inserted(*known: Any, **end: str) -> Any:
        with patch.object(shard_row, "fence", fence):
            return insert_under(*known, **end)

    def fence_exists(*known: Any) -> Any:
        return select(shard.c.id).where(fence(*known)).exists()

    insert_under = shard_row.insert_under
    return SimpleNamespace(**{**vars(shard_row), "insert_under": inserted, "fence_exists": fence_exists})


make = segments.make


def made_there(connection: Any, dialect: Any, tag: Any, known: Any) -> bool:
    """Begins where the row said that was read, with the key of the row that is there."""
    there = shard_row.fetch(connection, dialect)
    assert there is not None
    with patch.object(shard_row, "fence", nothing):
        return make(connection, dialect, tag, replace(known, move=there.move))


# -- leases

released, left, want = rows.released, Tenure.left, Tenure.want


def by_its_own(tenure: Tenure, now: Clocks) -> float:
    return until(tenure, now, tenure._end - now.own)


def by_the_wall(tenure: Tenure, now: Clocks) -> float:
    return until(tenure, now, (tenure._until_ms - now.wall_ms) / 1000)


def until(tenure: Tenure, now: Clocks, left: float) -> float:
    tenure.lost |= left <= 0
    tenure.used_ms = max(tenure.used_ms, now.wall_ms)
    return left


def whenever_granted(tenure: Tenure, asked: Clocks, now: Clocks) -> None:
    tenure.lost = False
    tenure._end, tenure._until_ms = now.own + LENGTH / 1000, now.wall_ms + LENGTH


def before_its_begin(tenure: Tenure, now: Clocks) -> float:
    tenure._from_ms = min(tenure._from_ms, now.wall_ms)
    return left(tenure, now)


def at_once(row: NumberRow, held: NumberLease, used_ms: int, at_ms: int) -> NumberRow | None:
    """Says that it was never used."""
    fresh = released(row, held, used_ms, at_ms)
    return replace(fresh, used_until_ms=0) if fresh else None


def after_its_end(tenure: Tenure, now: Clocks) -> Renewal | Wait | None:
    """Renews a lease that has ended, too."""
    step = want(tenure, now)
    return Renewal(now) if step is None else step


# -- the tables

CAME_TWICE = "came twice"
TWICE = "has already"
GONE = f"{TWICE}|nothing was forgotten"
FOREIGN = "never committed for it"
RUN = ("claim: own run", "claim: was", "claim: the row's move", "claim: the row's run")
BY_PLANS: dict[str, tuple[str, Broken, int]] = {
    "memory before commit": (f"{FOREIGN}|{GONE}|did not take", {(Statement, "_begin"): answers_first}, 0),
    "adopting a range of which nobody knows": (FOREIGN, {(Database, "claim_segment"): adopting}, 2),
    "giving a range back": ("was lowered", {(Dialect, "carry_out"): gives_back}, 0),
    "no renewal after a fork": ("not its own|twice", out("the hooks of a fork"), 6),
    "a lease that does not end": ("not in its lease", {(LeasedSnowflake, "left"): for_ever}, 10),
    "the guard of what was seen off": (
        TWICE,
        out("claim: seen", *RUN) | {(Segments, "record_seen"): forgets_the_mark},
        3,
    ),
    "the failover guard off": (TWICE, out(*RUN), 12),
    "a gap of nothing": (GONE, {(failover, "gap"): lambda tag, reach, at: 0}, 70),
    "a server that comes back is known": (GONE, {(store, "moved"): keeping_the_key}, 136),
    "a restart that counts as another server": (
        "no server was replaced|a server was replaced, and none was",
        out("a restart is the same run"),
        7,
    ),
    "a promotion that counts as a restart": (TWICE, out("a standby is another server"), 19),
    "a disk put back and nobody told": (GONE, out("an operator says that a backup goes on"), 38),
    "SELECT, then UPDATE": (f"was lowered|{TWICE}", {(Dialect, "carry_out"): reads_first}, 1),
    "a claim that ends late is taken": ("are missing|came after", {(Pace, "succeeded"): any_claim}, 85),
    "the limit guard off": ("beyond its limit", out("claim: limit"), 4),
    "a warning at the commit ignored": (FOREIGN, {(Dialect, "warnings"): lambda dialect, connection: []}, 17),
    "a transaction that was left open ignored": (
        f"{FOREIGN}|{GONE}",
        {(Dialect, "leaves_open"): trusts_the_session},
        7,
    ),
    "one id too many": (FOREIGN, {(Residue, "ids"): one_too_many}, 0),
    "a sequence that starts over": ("came after|twice", {(SnowflakeBlocks, "take"): starting_over}, 73),
    "ids after close": ("after it was closed", {(Supply, "_retire"): goes_on_serving}, 2),
    "a second failover that forgets the gap of the first": (TWICE, out("a gap is not forgotten"), 314),
}
BY_ENDS: dict[str, tuple[Broken, int]] = {
    "a start that was chosen before a move": ({(store, "check_unmoved"): lambda *_: None}, 3054),
    "a new tag with the key of the server that it reaches": ({(segments, "make"): made_there}, 589),
    "a claim on another server": (without(segments, "CLAIM", "{run} = :run"), 5),
    "a claim whatever the shard's row says": (without(segments, "CLAIM", "move = :shard_move AND", ""), 119),
    "a ticket on another server": (without(tickets, "TICKET", "{run} = :run"), 9),
    "a ticket by REPLACE where others claim it": (without(tickets, "TICKET", f"tickets = '{REPLACE}'"), 1442),
    "a node without a fence": ({(node_rows, "shard_row"): fenced_by(the_row_alone)}, 13),
    "a worker number without a fence": ({(worker_number_rows, "shard_row"): fenced_by(nothing)}, 42),
}
BY_PODS: dict[str, Broken] = {
    "taken at its end, and not a length later": {
        (lease, "is_over"): lambda row, at: not row.holder or at > row.until_ms
    },
    "no wait after a failover": {(lease, "check_moved"): lambda moved_at, claim, at: None},
    "a wait of one length after a failover": {(lease, "AFTER_MOVE"): 1},
    "a lease that has ended is renewed": {(Tenure, "want"): after_its_end, (Tenure, "renewed"): whenever_granted},
    "a new slot that leases at once": out("a new slot waits"),
    "a number of another slot": out("a lease: residue"),
    "an old server that answers for five lengths": {(workers, "OLD_ANSWERS"): 5 * LENGTH},
    "taken whatever the clock on the wall says": {(lease, "is_free"): lambda row, wall, at: lease.is_over(row, at)},
    "given back as if it had never been used": {(rows, "released"): at_once},
    "a clock far ahead of the database's": {(lease, "is_near"): lambda wall, length, at: True},
    "the end counted from the answer": out("a lease counts from the request"),
    "the clock of the process ignored": {(Tenure, "left"): by_the_wall},
    "the clock on the wall ignored": {(Tenure, "left"): by_its_own},
    "used before its begin": {(Tenure, "left"): before_its_begin},
    "a renewal that came after the end": {(Tenure, "renewed"): whenever_granted},
    "taken as it was read, not as it is": out("a lease: as it was read"),
    "taken on another server than was read": out("a lease: known run"),
    "a server's clock that steps further than a length": {(workers, "LONGEST_STEP"): 5 * LENGTH},
}
BY_MOVES = [
    # One row a database, one move a failover.
    ("a key for each move",),
    ("claim: the row's move", "claim: the row's run"),
    ("claim: own run",),
    ("gaps: read under the move",),
    ("ticket: own run",),
    ("tags set: leaves the key",),
    # Slots.
    ("the URL's word",),
    ("add: above the members",),
    ("add: empty",),
]
"""The words of a statement. No world needs these, which are a second line: a claim's `move = :row_move` and watermark,
the run in its EXISTS, and what a new tag asks for beside the residue."""
THREE, FORGETS = "draw p, draw p, draw p", "fail_over A 2 1 0"
TWO, ADD_TWO = "make A, add B 2", "make A, begin 1 add C 2, go 1, add B 2"
BY_SCENES = {
    "new tag: residue": "look, make A, new p, add B 2, claim p, claim p, deploy 1 B 0, draw p 1",
    "ticket: the row's move": (
        "draw nodes, fail_over A 2 0 0, draw nodes 1, copy_anew A 1, draw nodes 1, fail_over A 1 1 0, count nodes"
    ),
    "ticket: mode": "look, claim_tickets A, count tickets",
    "move: as it was noticed": (
        "fail_over A 2 0 0, look, make A, draw nodes 1, draw nodes 1, draw nodes 1, move, draw nodes"
    ),
    "claim: residue": "draw p, begin 0 delete p, go 0, claim p, go 0 0 9, draw p 1, draw p 1",
    "ticket: residue": "draw nodes, make A, draw nodes 1, count nodes, count nodes",
    "make: crosses": f"draw p, draw p, {FORGETS}, {TWO}",
    "make: refused in a fleet": f"{TWO}, make A, add C 2 A",
    "add: taken as read": f"{ADD_TWO}, go 1 0 9",
    "add: move as read": f"{ADD_TWO}, restore A 1, go 1 0 9",
    "add: own run": f"{ADD_TWO}, {FORGETS}, go 1 0 9",
    "add: taken under the present move": f"{TWO}, {FORGETS}, draw nodes, add C 2 A",
    "add: unused leaves the doubt": (
        f"{TWO}, restore A 5, add C 3 A 1, add D 2 AC, deploy 0 B 0, deploy 1 D 0, draw p, draw p, draw p 1, draw p 1"
    ),
    "add: every slot answers": "make A, add B 3, add C 2 A, lose A, add D 2 B",
    "add: marks, then reads": "make A, begin 0 add B 2, go 0 0 2, begin 1 start_after p 6, go 1 0 9, go 0 0 9",
    "add: one transaction": f"{THREE}, deploy 1 B 1, make A, begin 0 add B 2, go 0 0 4, draw p 1",
    "add: first value": f"{THREE}, fail_over A 2 9 0, draw nodes, {TWO}",
    "tags set: every slot": f"{TWO}, start_after p 6 A",
    "tags delete: closes first": f"draw p, {TWO}, draw p, begin 0 delete p AB, go 0, draw p 1",
    "tags delete: what is closed": (
        f"draw p, {TWO}, begin 0 delete p AB, go 0 0 2, {FORGETS}, draw p, go 0 0 9, draw p 1, draw p 1"
    ),
}
"""By the word that each is about: what shows in too few worlds."""
BY_SCENES_OF_CLUSTERS = {
    "new tag: written": "look 0 0 1, make A, new p 0 0 1, add B 2, claim p, claim p, deploy 1 B 0, draw p 1",
    "add: counters by a gap": f"draw tickets, apply A, {TWO}, count tickets 0 0 1",
    "tags set: written": (
        "draw p, make A, apply A, begin 0 add B 2, go 0 0 3, begin 1 start_after p 6, go 1 1 9, go 0 0 9"
    ),
}
"""A member lags behind another one."""
CONTROLS = [
    *(Control(name, PLANS, *how) for name, how in BY_PLANS.items()),
    *(Control(name, ENDS, f"{CAME_TWICE}|at one time", *how) for name, how in BY_ENDS.items()),
    *(Control(name, FEW, "held by two", how) for name, how in BY_PODS.items()),
    *(Control(" and ".join(words), MOVES, CAME_TWICE, out(*words)) for words in BY_MOVES),
    *(Control(word, scene(acts), CAME_TWICE, out(word)) for word, acts in BY_SCENES.items()),
    *(Control(word, scene(acts, True), CAME_TWICE, out(word)) for word, acts in BY_SCENES_OF_CLUSTERS.items()),
]
