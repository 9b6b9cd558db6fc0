"""What operators do in the worlds of `moves`: each transaction of a command is an act, and any may be the last.

A command yields the database that its next transaction asks, and is sent a connection, or None where it is lost.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from allocator.schemes.shared.residues import NONE
from allocator.schemes.slots import unasked, union
from simulation import rows as sql
from simulation.rows import CLAIM, NODES, SHARD, TICKETS, Rows, Shard, Tag
from simulation.seeds import is_out

if TYPE_CHECKING:
    from simulation.moves import Connection, Database, World

Command = Generator["Database", "Connection | None", None]
SLOTS = 3
FLEETS = {"A": "f", "D": "g"}
"""By the database that `shards make` is given."""
GAPS, REFUSES, TYPE = "p", "q", "t"
"""Two tags, of which one refuses failovers, and the reserved tag of a type of tickets."""


def make(world: World, name: str) -> Command:
    database = world.databases[name]
    if not (at := (yield database)) or (database.was_in_fleet and not at.rows[SHARD].fleet):
        return
    moved = world.moved(at, at.rows[SHARD]) or {}
    rows = {**at.rows, **moved}
    if (tag := rows.get(REFUSES)) and tag.move != rows[SHARD].move and not is_out("make: crosses"):
        return
    made = sql.made(rows, SLOTS, FLEETS[name], world.reach(at))
    if made and at.commit({**moved, **made}):
        database.join(database.home)
        world.joined.add(1)
        world.counts["make"] += 1


def add(world: World, name: str, slot: int, names: str = "", unused: bool = False) -> Command:
    world.adding.append(slot)
    try:
        read = yield from read_rows(world, names)
        shards = [shard for shard, _ in read.values()]
        lost = {-one for one in unasked(shards) if one in world.lost() and one != slot}
        taken = frozenset(union(*(shard.taken for shard in shards), [slot], lost))
        if not may_add(world, slot, read, unused):
            return
        doubt = not is_out("add: unused leaves the doubt")
        is_sure = not doubt or any(here and one.marked == one.move for one, here in read.values())
        marks, values = mark(world, slot, read, taken, is_sure), values_of(read)
        if is_out("add: marks, then reads"):
            found, is_marked = (yield from values), (yield from marks)
        else:
            is_marked = yield from marks
            found = (yield from values) if is_marked else []
        if is_marked and found:
            yield from join(world, world.databases[name], slot, taken, sql.greatest(found), is_sure)
    finally:
        world.adding.remove(slot)


Read = dict["Database", tuple[Shard, bool]]
"""The row of each member, and whether the server that answers has written it."""


def read_rows(world: World, names: str) -> Generator[Database, Connection | None, Read]:
    read: Read = {}
    for member in world.members(names):
        if at := (yield member):
            read[member] = at.rows[SHARD], at.rows[SHARD].run == at.server.run
    return read


def may_add(world: World, slot: int, read: Read, unused: bool) -> bool:
    """An operator says `--without` and `--unused` where it is true."""
    shards = [shard for shard, _ in read.values()]
    taken = union(*(shard.taken for shard in shards))
    answer = {shard.residue.offset for shard in shards}
    if {shard.fleet for shard in shards} != {FLEETS["A"]} or len(answer) < len(shards):
        return False
    is_unused = unused and slot not in world.joined and world.adding.count(slot) == 1
    if {*unasked(shards)} - world.lost() - ({slot} if is_unused else frozenset()) and not is_out(
        "add: every slot answers"
    ):
        return False
    if is_unused and -slot not in taken:
        return True
    any_move = is_out("add: taken under the present move")
    is_present = any(is_here and (any_move or shard.marked == shard.move) for shard, is_here in read.values())
    return is_present and not {slot, -slot} & {*taken}


def mark(
    world: World, slot: int, read: Read, taken: frozenset[int], is_sure: bool
) -> Generator[Database, Connection | None, bool]:
    for member, (shard, _) in read.items():
        at = yield member
        if not at or not at.commit(sql.marked(at.rows, at.server.run, shard, taken, is_sure=is_sure)):
            return False
        world.marked.add(slot)
    return True


def values_of(read: Read) -> Generator[Database, Connection | None, list[Rows]]:
    found = []
    for member in read:
        at = yield member
        if not at or at.rows[SHARD].fleet != FLEETS["A"]:
            return []
        found.append(at.rows)
    return found


def join(world: World, new: Database, slot: int, taken: frozenset[int], like: Rows, is_sure: bool) -> Command:
    at = yield new
    if not at or forgot_all(new):
        return
    world.moves += 1
    written = sql.joined(at.rows, at.server.run, f"k{world.moves}", like, taken, slot, is_sure=is_sure)
    if written and is_out("add: one transaction"):
        at.commit({SHARD: written[SHARD]._replace(first=at.rows[SHARD].first)})
        new.join("A")
        at = yield new
    if at and at.commit(written):
        at.server.behind = 0
        for kind in (GAPS, REFUSES, TICKETS, NODES):  # what it gave before may be no number of the fleet's
            for number, whose in world.given.pop((new.name, kind), {}).items():
                world.note("A", kind, number, whose)
        new.join("A")
        world.joined.add(slot)
        world.counts["add"] += 1


def forgot_all(new: Database) -> bool:
    """It gave numbers alone, and nothing says so any more: that is the operator's to know."""
    rows = new.rows
    is_empty = not sql.tags(rows) and not rows[TICKETS] and not rows[NODES]
    return new.old is not None or (is_empty and any(new.gave.values()))


def set(world: World, name: str, database: str, up: int) -> Command:  # noqa: A001
    """`tags set`: a limit, or a value that is no gap."""
    at = yield world.databases[database]
    if at and (tag := at.rows.get(name)):
        key = at.rows[SHARD].move if is_out("tags set: leaves the key") else tag.move
        at.commit({name: tag._replace(value=tag.value + up, move=key)})


def is_ours(database: Database, shard: Shard) -> bool:
    """Of the fleet, or the only database before there is one."""
    return shard.fleet == FLEETS["A"] or (database.name == "A" and not shard.fleet and not database.was_in_fleet)


def start_after(world: World, name: str, further: int, names: str = "") -> Command:
    """`tags set --start-after`, above a column that has ids up to there. Writes the shard's row, as a new tag does."""
    end, closings = max(world.given["A", name], default=0) + further, world.closings[name]
    wrote: list[Shard] = []
    asked = world.members(names)
    for database in asked:
        if not (at := (yield database)) or database.old or not is_ours(database, at.rows[SHARD]):
            return
        written: Rows = world.moved(at, at.rows[SHARD]) or {}
        shard: Shard = written.get(SHARD) or at.rows[SHARD]
        tag = at.rows.get(name) or Tag(shard.first, shard.move, shard.residue)
        written[name] = tag._replace(value=max(end, tag.value))
        if name not in at.rows or not is_out("tags set: written"):
            written[SHARD] = shard._replace(made=shard.made + 1)
        if tag.residue == NONE or not at.commit(written):
            return
        database.set_at = len(database.primary.states) - 1
        wrote.append(shard)
    if world.closings[name] == closings and (not unasked(wrote) or is_out("tags set: every slot")):
        alive = {one.shard.residue.offset for one in world.members() if one.shard.fleet}
        if (alive | (world.marked & {*world.adding})) - {*union(*(one.shard.taken for one in asked))}:
            return  # a failover forgot the mark of one that the list lacks, or that is being added: it is run again
        for number in {*range(1, end + 1)} - world.given["A", name].keys():
            world.note("A", name, number, "the column")
        world.counts["start after"] += 1


def delete(world: World, name: str, names: str = "") -> Command:
    """Closed at every slot, then removed where it is still closed."""
    databases, at_once = world.members(names), is_out("tags delete: closes first")
    if not at_once and not (yield from close(name, databases, world)):
        return
    closings = world.closings[name]
    for database in databases:
        if not (at := (yield database)):
            return
        tag = at.rows.get(name)
        is_open = tag and tag.residue != NONE and not at_once and not is_out("tags delete: what is closed")
        if is_open or (tag and not at.commit({name: None})):
            return
        if world.closings[name] > closings:
            world.forget(name, databases)  # another command closed it since
    if at_once:
        world.forget(name, databases)
    world.counts["delete"] += 1


def close(name: str, databases: list[Database], world: World) -> Generator[Database, Connection | None, bool]:
    closed: list[Shard] = []
    for database in databases:
        if not (at := (yield database)) or not is_ours(database, at.rows[SHARD]):
            return False
        shard = at.rows[SHARD]
        tag = at.rows.get(name) or sql.Tag(0, shard.move)  # where it was never made, nobody may make it meanwhile
        if not at.commit({name: tag._replace(residue=NONE)}):
            return False
        world.closings[name] += 1
        closed.append(shard)
    if not unasked(closed):
        world.forget(name, databases)
    return not unasked(closed)


def repair(world: World, name: str, database: str) -> Command:
    """Reads, and writes later: the claim's text, of no ids."""
    at = yield world.databases[database]
    if not at or at.rows[SHARD].run != at.server.run or not (tag := at.rows.get(name)):
        return
    known, skip = at.rows[SHARD], max(0, world.reach(at)(name) - tag.value)
    if at := (yield world.databases[database]):
        at.commit(sql.claimed(at.rows, at.server.run, name, known, tag.move, skip, size=0))


def claim_tickets(world: World, database: str) -> Command:
    """`db upgrade --tickets claim`, before the first ticket: while a member of a cluster lags, nobody may draw."""
    at = yield world.databases[database]
    if at and not at.server.behind and not at.rows[TICKETS] and not at.rows.get(TYPE):
        at.commit({SHARD: at.rows[SHARD]._replace(tickets=CLAIM)})
        at.server.behind = 0  # REPLACE on a member that lags would draw yet
