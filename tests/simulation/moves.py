"""Worlds of one row a database, one move a failover, and of slots: plain rows, no SQL, and no clock.

A world is a list of acts: a statement of a process, a transaction of a command, or an accident between any two of them.
An act that does not apply does nothing, so a world that repeats a number is shrunk by leaving acts out.

Servers fail over to any earlier state, there and back, to a copy made anew, to a cluster; an old primary answers on; of
a cluster two members write, of which the second lags; databases are away, lost, and added meanwhile. Processes keep
what they read, and use it when it is stale. A gap is raised above all that this database gave, and no further.

Given up, and so left out: an identity that returns without the move between, and what else `docs/failover.md` and
`docs/fleets.md` name. An operator says `--without` and `--unused` only where it is true.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from allocator.schemes.shared.residues import NONE
from simulation import operators
from simulation import rows as sql
from simulation.operators import FLEETS, GAPS, REFUSES, SLOTS, TYPE
from simulation.rows import CLAIM, NODES, REPLACE, SHARD, TICKETS, Rows, Shard
from simulation.seeds import Engine, Violation, fewest, is_out

Act = tuple[Any, ...]
KIND = {TYPE: TICKETS}
LEFT = 2
"""Numbers that an old primary still gives."""
FIRST, SECOND, OLD = range(3)
"""Whom a statement reaches: of a cluster there are two."""


class Server:
    """`run` is the name of a server, or of a cluster; `states` are its commits, oldest first."""

    def __init__(self, run: str, states: list[Rows]) -> None:
        self.run, self.states = run, states
        self.behind = 0
        """Commits that the second member of a cluster has not applied."""


class Connection(NamedTuple):
    database: Database
    server: Server
    is_second: bool

    @property
    def rows(self) -> Rows:
        return self.server.states[-1 - self.server.behind * self.is_second]

    @property
    def is_old(self) -> bool:
        return self.server is not self.database.primary

    def commit(self, written: Rows | None) -> bool:
        """A cluster certifies what is written, and nothing that was only read."""
        server, database = self.server, self.database
        newest, seen = server.states[-1], self.rows
        if (
            not written
            or (self.is_old and database.left == 0)
            or any(newest.get(k) is not seen.get(k) for k in written)
        ):
            return False
        server.behind = 0 if self.is_second else server.behind + database.is_cluster
        server.states.append({**newest, **written})
        return True


class Database:
    """One shard: its present server, the standbys that follow it, and the primary before."""

    def __init__(self, name: str, is_cluster: bool) -> None:
        self.name, self.is_cluster, self.home = name, is_cluster, name
        """home: whose numbers its own must differ from, those of a fleet once it has joined."""
        run = f"{name}1"
        first = Shard(run, f"{run} k0", tickets=REPLACE, marked=f"{run} k0")
        self.primary = Server(run, [{SHARD: first, **sql.EMPTY}])
        self.standbys = {f"{name}{number}": 0 for number in (2, 3)}
        """From which state on each may go on."""
        self.old: Server | None = None
        self.left = 0
        self.is_away = self.is_lost = self.is_clone = self.was_in_fleet = False
        self.set_at = self.fleet_at = 0
        """The states of the last `tags set --start-after`, and of `make` or `add`: no failover may forget them."""
        self.gave: Counter[str] = Counter()
        """The greatest number of each kind."""

    @property
    def rows(self) -> Rows:
        return self.primary.states[-1]

    @property
    def shard(self) -> Shard:
        return self.rows[SHARD]

    def connect(self, whom: int) -> Connection | None:
        if self.is_away or self.is_lost:
            return None
        server = self.old if whom == OLD and self.old else self.primary
        return Connection(self, server, whom == SECOND and self.is_cluster)

    def reach(self, kind: str, server: Server, moves: int) -> int:
        """The oracle of all gaps: what was given, and what the old primary may still give, but nothing further.

        At the old primary itself the gap goes elsewhere: by the seconds in which the two moved.
        """
        if kind == SHARD:
            return max(self.reach(name, server, moves) for name in (GAPS, REFUSES, TYPE))
        kind = KIND.get(kind, kind)
        most = self.gave["counter" if kind == NODES else kind]
        if server is not self.primary:
            return most + 1000 * (moves + 1)
        if self.old is None:
            return most
        rows = self.old.states[-1]
        if kind == NODES:
            return max(most, rows[NODES]) + self.left
        values = [row.value for name, row in sql.tags(rows).items() if KIND.get(name, name) == kind]
        values += [rows[SHARD].first, rows[TICKETS] if kind == TICKETS else 0]
        return max(most, *values) + self.left * rows[SHARD].residue.step

    def join(self, home: str) -> None:
        self.home, self.was_in_fleet, self.fleet_at = home, True, len(self.primary.states) - 1


class Url(NamedTuple):
    """`fleet` and `slot` are what it says, if anything."""

    database: str
    fleet: str = ""
    slot: int = 0

    def fits(self, shard: Shard) -> bool:
        return not self.fleet or (self.fleet, self.slot) == (shard.fleet, shard.residue.offset)


class Kept:
    """What a process keeps of a database."""

    def __init__(self) -> None:
        self.shard: Shard | None = None
        self.noticed: Shard | None = None
        self.tags: dict[str, tuple[object, int | None]] = {}
        """The move of the tag's row, and the gap that belongs to it."""
        self.seen: Counter[str] = Counter()


class Process:
    def __init__(self, urls: tuple[Url, ...]) -> None:
        self.urls = urls
        self.kept: dict[str, Kept] = defaultdict(Kept)
        slots = [url.slot for url in urls]
        self.is_refused = len(urls) > 1 and (len({*slots}) < len(slots) or len({url.fleet for url in urls}) > 1)
        """A slot twice, or two fleets: before anything is read."""


class World:
    """`clusters`: of each server two members write."""

    def __init__(self, clusters: bool = False) -> None:
        self.moves = 0
        self.databases = {name: Database(name, clusters) for name in "ABCD"}
        self.processes = [Process((Url("A"),)) for _ in range(3)]
        self.commands: list[tuple[Database, operators.Command] | None] = [None, None]
        self.adding: list[int] = []
        """The slots of each `shards add` that is under way."""
        self.marked: set[int] = set()
        """Those that an addition has written into a member, and those that have joined."""
        self.joined: set[int] = set()
        self.given: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
        """Whose each number is, by home and kind."""
        self.closings: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def run(self, acts: Iterable[Act]) -> World:
        for act in acts:
            getattr(self, act[0])(*act[1:])
        return self

    # -- the account

    def give(self, database: Database, url: Url, kind: str, number: int) -> None:
        """To the application whose URL it is: one that says a fleet is the fleet's."""
        home = next((name for name, fleet in FLEETS.items() if fleet == url.fleet), database.home)
        database.gave[kind] = max(database.gave[kind], number)
        self.note(home, kind, number, database.name)
        self.counts[kind] += 1

    def note(self, home: str, kind: str, number: int, whose: str) -> None:
        given = self.given[home, kind]
        if number in given:
            raise Violation(f"{number} of {kind} came twice, from {given[number]} and {whose}")
        given[number] = whose

    # -- statements of a process

    def reached(self, i: int, u: int, whom: int) -> tuple[Kept, Url, Connection] | None:
        process = self.processes[i]
        url = process.urls[u % len(process.urls)]
        connection = None if process.is_refused else self.databases[url.database].connect(whom)
        return connection and (process.kept[url.database], url, connection)

    def known(self, i: int, u: int, whom: int) -> tuple[Kept, Shard, Url, Connection] | None:
        """As `reached`, where it has read the shard's row."""
        found = self.reached(i, u, whom)
        return (found[0], found[0].shard, *found[1:]) if found and found[0].shard else None

    def draw(self, what: str, i: int = 0, u: int = 0, whom: int = FIRST) -> None:
        """As a process does where nothing comes between."""
        self.look(i, u, whom)
        self.move(i, u, whom)
        self.look(i, u, whom)
        if what in KIND.values() or what == NODES:
            self.count(what, i, u, whom)
        if what in (GAPS, REFUSES, TYPE):
            self.read(what, i, u, whom)
            self.new(what, i, u, whom)
            self.claim(what, i, u, whom)

    def look(self, i: int = 0, u: int = 0, whom: int = FIRST) -> None:
        """The shard's row and the server's own run, in one statement."""
        if not (found := self.reached(i, u, whom)):
            return
        kept, url, at = found
        shard = at.rows[SHARD]
        before, kept.shard, kept.noticed = kept.shard, None, None
        if not url.fits(shard) and not is_out("the URL's word"):
            self.counts["databases not used"] += 1
        elif shard.run != at.server.run:
            kept.noticed = shard
        else:
            kept.shard = shard
            if before != shard and not is_out("gaps: read under the move"):
                kept.tags = {name: (was, None) for name, (was, _) in kept.tags.items()}

    def move(self, i: int = 0, u: int = 0, whom: int = FIRST, dies: bool = False) -> None:
        """One transaction; what raises the counters may stay where it dies."""
        if not (found := self.reached(i, u, whom)) or found[0].noticed is None:
            return
        kept, _, at = found
        written = self.moved(at, kept.noticed)
        if dies and written:
            del written[SHARD]
        self.counts["moves"] += at.commit(written)
        kept.noticed = None

    def moved(self, at: Connection, noticed: Shard | None = None) -> Rows | None:
        self.moves += 1
        key = at.server.run if is_out("a key for each move") else f"k{self.moves}"
        return sql.moved(at.rows, at.server.run, key, self.reach(at), noticed)

    def reach(self, at: Connection) -> Callable[[str], int]:
        return partial(at.database.reach, server=at.server, moves=self.moves)

    def read(self, name: str, i: int, u: int, whom: int) -> None:
        """The row of a tag, in one statement with the shard's."""
        if not (found := self.known(i, u, whom)):
            return
        kept, known, _, at = found
        rows = at.rows
        if (rows[SHARD].move, at.server.run) != (known.move, known.run) and not is_out("gaps: read under the move"):
            return
        kept.tags.pop(name, None)
        if tag := rows.get(name):
            kept.tags[name] = tag.move, max(0, self.reach(at)(name) - tag.value)

    def new(self, name: str, i: int = 0, u: int = 0, whom: int = FIRST) -> None:
        if found := self.known(i, u, whom):
            kept, known, _, at = found
            if at.commit(sql.new_tag(at.rows, at.server.run, name, known)):
                kept.tags[name] = known.move, 0

    def claim(self, name: str, i: int = 0, u: int = 0, whom: int = FIRST) -> None:
        found = self.known(i, u, whom)
        if not found or name not in found[0].tags:
            return
        kept, known, url, at = found
        was, gap = kept.tags[name]
        if was == known.move:
            gap = 0
        if gap is None or (name == TYPE and known.tickets != CLAIM):
            return
        if was != known.move and name == REFUSES:
            self.counts["refused after a failover"] += 1
            return
        written = sql.claimed(at.rows, at.server.run, name, known, was, gap, seen=kept.seen[name])
        if at.commit(written):
            number = known.residue.ids(written[name].value, 1)[0]
            kept.tags[name], kept.seen[name] = (known.move, 0), number
            self.counts["gaps"] += gap > 0
            self.drawn(at, url, KIND.get(name, name), number)

    def count(self, counter: str, i: int = 0, u: int = 0, whom: int = FIRST) -> None:
        """A ticket by REPLACE, or a node."""
        if found := self.known(i, u, whom):
            _, known, url, at = found
            written = (sql.ticket if counter == TICKETS else sql.node)(at.rows, at.server.run, known)
            if at.commit(written):
                number = written[counter]
                if counter == NODES:
                    at.database.gave["counter"] = max(number, at.database.gave["counter"])
                    number = sql.node_number(number, known.residue)
                self.drawn(at, url, counter, number)

    def drawn(self, at: Connection, url: Url, kind: str, number: int) -> None:
        at.database.left -= at.is_old
        self.counts["from an old primary"] += at.is_old
        self.counts["from a second member"] += at.is_second
        self.give(at.database, url, kind, number)

    # -- commands: each of their transactions is an act, and any may be the last

    def begin(self, j: int, name: str, *args: Any) -> None:
        if self.commands[j] is None:
            command = getattr(operators, name)(self, *args)
            first = next(command, None)
            self.commands[j] = first and (first, command)

    def go(self, j: int, whom: int = FIRST, times: int = 1) -> None:
        for _ in range(times):
            if (entry := self.commands[j]) is None or entry[0].is_away:
                return
            try:
                self.commands[j] = entry[1].send(entry[0].connect(whom)), entry[1]
            except StopIteration:
                self.commands[j] = None

    def kill(self, j: int) -> None:
        if entry := self.commands[j]:
            entry[1].close()
            self.commands[j] = None

    def members(self, names: str = "") -> list[Database]:
        """Whom an operator names, each by its right URL: some, or all that are of the fleet."""
        all_of = [one for one in self.databases.values() if not one.is_clone]
        known = [one for one in all_of if one.shard.fleet == FLEETS["A"] and not one.is_lost]
        return [one for one in all_of if one.name in names] or known or [self.databases["A"]]

    def lost(self) -> set[int]:
        """The slots that an operator may name `--without`."""
        used = self.joined | self.marked
        return used - {one.shard.residue.offset for one in self.members() if not one.is_lost} - {*self.adding}

    def forget(self, name: str, databases: list[Database]) -> None:
        """The ids of a tag are given up."""
        self.given.pop(("A", name), None)
        for database in databases:
            database.gave.pop(name, None)

    # -- accidents, and what an operator does about them

    def earliest(self, database: Database) -> int:
        """The state before which no failover goes: where a URL says nothing, that of `make` and `add` too."""
        silent = any(url == Url(database.name) for process in self.processes for url in process.urls)
        return max(database.set_at, database.fleet_at if silent else 0)

    def fail_over(self, name: str, server: int, lag: int, answers_on: bool) -> None:
        database, run = self.databases[name], f"{name}{server}"
        self.counts["failovers"] += 1
        if run not in database.standbys or database.is_lost:
            return
        states = database.primary.states
        kept = max(database.standbys[run], len(states) - 1 - lag, self.earliest(database))
        database.old, database.left = (database.primary, LEFT) if answers_on else (None, 0)
        database.standbys = {one: base for one, base in database.standbys.items() if one != run and base <= kept}
        database.primary = Server(run, states[: kept + 1])

    def copy_anew(self, name: str, server: int) -> None:
        """Of the present primary, after its move."""
        database, run = self.databases[name], f"{name}{server}"
        if run == database.primary.run or database.shard.run != database.primary.run:
            return
        if database.old and database.old.run == run:
            self.fence(name)
        database.standbys[run] = len(database.primary.states) - 1

    def fence(self, name: str) -> None:
        self.databases[name].old, self.databases[name].left = None, 0

    def restore(self, name: str, lag: int) -> None:
        """And `db mark-restored`, before anybody draws. The mark alone does no harm."""
        database = self.databases[name]
        if lag:
            states = database.primary.states
            kept = max(1, len(states) - lag, self.earliest(database) + 1)
            database.primary = Server(database.primary.run, states[:kept])
            database.standbys = {}
            self.fence(name)
        at = Connection(database, database.primary, is_second=False)
        at.commit(self.moved(at))
        database.primary.behind = 0

    def apply(self, name: str) -> None:
        self.databases[name].primary.behind = 0

    def away(self, name: str, is_away: bool) -> None:
        self.databases[name].is_away = is_away

    def lose(self, name: str) -> None:
        self.databases[name].is_lost = True
        self.counts["lost"] += 1

    def clone(self, name: str, same_run: bool) -> None:
        """A copy of a member, as D: it says a slot that its URL does not."""
        member, copy = self.databases[name], self.databases["D"]
        url = Url("D", "f", member.shard.residue.offset)
        beside = any(url in process.urls for process in self.processes)
        if member.shard.fleet == "f" and len(copy.primary.states) == 1 and not copy.was_in_fleet and not beside:
            copy.primary = Server(member.primary.run if same_run else "D1", [member.rows])
            copy.is_clone = copy.was_in_fleet = True
            self.counts["copies of a member"] += 1

    def deploy(self, i: int, names: str, guess: int) -> None:
        """A new process in place of another. A single URL may say nothing, but where `make` or `add` was forgotten."""
        found = [self.databases[name] for name in names]
        if (
            len(found) == 1
            and not guess
            and (found[0].shard.fleet or not found[0].was_in_fleet)
            and not found[0].is_clone
        ):
            self.processes[i] = Process((Url(names),))
            return
        self.processes[i] = Process(tuple(Url(one.name, "f", self.slot(one, guess + n)) for n, one in enumerate(found)))
        self.counts["lists refused"] += self.processes[i].is_refused

    def slot(self, database: Database, guess: int) -> int:
        if database.shard.fleet and not database.is_clone:
            return database.shard.residue.offset
        slot = guess % SLOTS + 1
        return slot if slot != database.shard.residue.offset else slot % SLOTS + 1

    # -- the end

    def settle(self) -> World:
        """Everything is mended: each database gives again, but for what refuses or is closed."""
        for name, database in self.databases.items():
            self.fence(name)
            database.is_away, database.primary.behind = False, 0
            shard, closed = database.shard, {key for key, tag in sql.tags(database.rows).items() if tag.residue == NONE}
            if database.is_lost or database.is_clone or (database.was_in_fleet and not shard.fleet):
                continue
            self.processes[0] = Process((Url(name, shard.fleet, shard.residue.offset if shard.fleet else 0),))
            for what in (GAPS, NODES, TICKETS if shard.tickets == REPLACE else TYPE):
                before = self.counts[KIND.get(what, what)]
                self.draw(what)
                if self.counts[KIND.get(what, what)] == before and what not in closed:
                    raise Violation(f"{what} of {name} stands still")
        return self


# -- worlds of a seed

ACTS = 100


class Theme(NamedTuple):
    """How many acts of a hundred are statements of processes, accidents, and an operator's; and which those are."""

    shares: tuple[int, int, int]
    operator: tuple[str, ...]
    several: bool = True


ONE = Theme(
    (68, 22, 10), ("go",) * 3 + ("kill", "set", "claim_tickets", "start_after", "delete") + ("repair",) * 2, False
)
ADDITIONS = Theme((20, 20, 60), ("go",) * 12 + ("make",) * 2 + ("add",) * 5 + ("start_after", "deploy", "kill"))
MOST = ("go",) * 14 + ("make",) * 3 + ("add",) * 6 + ("deploy",) * 4
FLEET = Theme((28, 12, 60), MOST + ("kill", "lose", "clone", "away", "set", "start_after", "delete", "repair"))


def statement(dice: random.Random, theme: Theme) -> Act:
    i, u, whom = dice.randrange(3), dice.randrange(3 if theme.several else 1), dice.choice((FIRST, FIRST, SECOND, OLD))
    name = dice.choice((GAPS, GAPS, REFUSES, TYPE))
    what = dice.choice(("draw", "draw", "draw", "draw", "look", "move", "read", "claim", "claim", "new", "count"))
    if what == "look":
        return what, i, u, whom
    if what == "move":
        return what, i, u, whom, dice.random() < 0.15
    if what == "draw":
        name = dice.choice((name, name, name, TICKETS, NODES))
    return what, dice.choice((TICKETS, NODES)) if what == "count" else name, i, u, whom


def accident(dice: random.Random, theme: Theme) -> Act:
    name, server = dice.choice("AAABCD" if theme.several else "A"), dice.choice((1, 2, 3))
    what = dice.choice(
        ("fail_over", "fail_over", "fail_over", "copy_anew", "copy_anew", "copy_anew", "apply", "restore", "fence")
    )
    if what == "fail_over":
        return what, name, server, dice.choice((0, 0, 1, 2, 3, 5, 9)), dice.random() < 0.5
    if what == "restore":
        return what, name, dice.randrange(6)
    return (what, name, server) if what == "copy_anew" else (what, name)


def operator(dice: random.Random, theme: Theme) -> Act:
    j, name = dice.randrange(2), dice.choice((GAPS, REFUSES))
    what = dice.choice(theme.operator)
    if what == "go":
        return what, j, dice.choice((FIRST, FIRST, SECOND)), dice.choice((1, 1, 9, 9))
    if what == "kill":
        return what, j
    some = "".join(dice.sample("ABCD", dice.choice((1, 2, 3)))) if theme.several and dice.random() < 0.3 else ""
    one = dice.choice("AABCD") if theme.several else "A"
    if what == "deploy":
        return what, dice.randrange(3), some or one, dice.randrange(3)
    if what in ("away", "clone"):
        return what, one, dice.random() < 0.2
    if what == "lose":
        return what, one
    more: dict[str, tuple[Any, ...]] = {
        "make": ("A" if dice.random() < 0.9 else "D",),
        "add": (dice.choice("BCD"), dice.choice((2, 2, 3)), some, dice.random() < 0.2),
        "set": (name, one, dice.randrange(2)),
        "start_after": (name, dice.randrange(4), some),
        "delete": (name, some),
        "repair": (dice.choice((name, REFUSES)), one),
        "claim_tickets": (one,),
    }
    return "begin", j, what, *more[what]


def drawn(seed: int) -> tuple[bool, list[Act]]:
    """Whether the servers are clusters, and the acts. Each second world has several databases."""
    dice, theme = random.Random(f"moves {seed}"), (ONE, FLEET, ONE, ADDITIONS)[seed % 4]
    kinds = dice.choices((statement, accident, operator), theme.shares, k=ACTS)
    acts = [kind(dice, theme) for kind in kinds]
    if theme.several and dice.random() < 0.7:
        acts[9:9] = ("begin", 0, "make", "A"), ("go", 0, FIRST, 9), ("begin", 1, "add", "B", 2, "", False)
    return seed % 16 < 4, acts


def failure(clusters: bool, acts: Iterable[Act]) -> str:
    """What such a world breaks, empty where it breaks nothing."""
    try:
        World(clusters).run(acts).settle()
    except Violation as error:
        return str(error)
    return ""


def play(seed: int) -> Counter[str]:
    clusters, acts = drawn(seed)
    return World(clusters).run(acts).settle().counts


def trace(seed: int) -> str:
    clusters, acts = drawn(seed)
    least = fewest(acts, lambda fewer: bool(failure(clusters, fewer)))
    return "\n    ".join((f"{'clusters, ' * clusters}{failure(clusters, least)}", *map(str, least)))


MOVES = Engine("moves", play, trace=trace)


def scene(words: str, clusters: bool = False) -> Engine:
    """A world of these acts. A command by its name is begun and goes on to its end."""
    acts: list[Act] = []
    for one in words.split(", "):
        name, *args = (int(word) if word.isdigit() else word for word in one.split())
        acts += [("begin", 0, name, *args), ("go", 0, FIRST, 9)] if hasattr(operators, name) else [(name, *args)]
    return Engine("scene", lambda seed: World(clusters).run(acts).settle().counts)
