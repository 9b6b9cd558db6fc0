"""`allocator shards make|add|list`: the steps of `allocator.schemes.slots`, each of which may be the last."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from secrets import randbits, token_hex
from time import time_ns
from typing import NamedTuple, TypeVar

from allocator.database.store import ATTEMPTS, UNSTEADY, Database
from allocator.database.verbs import fleet_rows, node_rows, shard_row
from allocator.database.verbs.fleet_rows import Given
from allocator.errors import AllocatorError, DatabaseUnavailable, ShardMisconfigured
from allocator.fleet.tag_administration import ask
from allocator.schemes.failover import Skipped, is_of_cluster, moved, skipped
from allocator.schemes.meteor import Node
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import ARGUMENT, Shard, Word, check_addition, check_slots, is_sure, union
from allocator.schemes.ticket import CLAIM
from allocator.schemes.worker_number_lease import Space, together

T = TypeVar("T")


def make(database: Database, slots: int) -> Shard:
    """Make a database slot 1 of a new fleet."""
    check_slots(slots)
    database.check_owner()
    fleet = token_hex(4)
    for _ in range(ATTEMPTS):
        now = database.settled_snapshot()
        if now.shard.fleet == fleet:  # the answer of the attempt before was lost
            return now.shard
        if now.shard.fleet:
            raise ShardMisconfigured(
                f"{database.shown} is slot {now.shard.word}; to add a database: allocator shards add URL --slot K"
            )
        database.transact(fleet_rows.make, now.shard, fleet, slots, now.at)
    raise DatabaseUnavailable(UNSTEADY)


def add(
    members: Sequence[Database], new: Database, slot: int, without: Collection[int] = (), *, is_unused: bool = False
) -> Shard:
    """Add a new database to the fleet of the members. They mark the slot as taken, then are read, then it joins."""
    rows = [member.settled_snapshot().shard for member in members]
    check_addition(rows, slot, without, is_unused)
    key = check_new(new)
    if any(slot in row.taken and row.taken_for != key for row in rows):
        raise ShardMisconfigured(f"slot {slot} was taken for another database; take another, with --without {slot}")
    sure = is_sure(rows)
    taken = union(*(row.taken for row in rows), [slot], [-lost for lost in without])
    # Where a failover may have forgotten another slot, a row goes on to say so.
    marks = [
        replace(row, taken=taken, taken_under=row.move.key if sure else row.taken_under, taken_for=key) for row in rows
    ]
    for member, row, mark in zip(members, rows, marks, strict=True):
        done(member, member.run(fleet_rows.take_slot, row, mark))
    given = [
        done(member, member.transact(fleet_rows.fetch_given, mark)) for member, mark in zip(members, marks, strict=True)
    ]
    planned = Shard(rows[0].fleet, Residue(slot, rows[0].residue.step), taken)
    return join(new, planned, reduce(greatest, given), any(is_of_cluster(row.move.run) for row in rows), sure)


def check_new(new: Database) -> int:
    """The key of its move. Raises where the database cannot join, before a slot is taken for it."""
    new.check_owner()
    now = new.settled_snapshot().shard
    if now.fleet or new.run(shard_row.has_ids):
        raise ShardMisconfigured(f"{new.shown} has given ids or is in a fleet; a database that is added must be new")
    return now.move.key


def done(member: Database, answer: T | None) -> T:
    if answer:
        return answer
    raise ShardMisconfigured(
        f"another command has changed {member.shown}, or it moved to another server, and nothing was added; run it "
        "again with --unused, or take another slot"
    )


def join(new: Database, planned: Shard, given: Given, lags: bool, sure: bool) -> Shard:
    """Make the new database the planned slot.

    lags: a member of a cluster may still draw tickets and nodes of before, which nothing here knows.
    sure: no failover may have forgotten another slot.
    """
    for _ in range(ATTEMPTS):
        now = new.settled_snapshot()
        known = now.shard
        if known.word == planned.word:  # the answer of the attempt before was lost
            return known
        gap = skipped(now.at, planned.residue) if lags else Skipped(0, 0)
        begin = given._replace(nodes=given.nodes + gap.nodes, tickets=given.tickets + gap.tickets)
        # Where tickets are claimed, a type begins as a tag does: above those that REPLACE drew.
        drawn = begin.tickets if known.tickets == CLAIM and given.replaced else 0
        # From now on as after a failover: nobody takes a worker number that a member may have leased.
        move = moved(known.move, planned.residue, known.move.run, randbits(63), now.at, time_ns() // 1_000_000)
        move = move._replace(first_value=max(known.move.first_value, given.first_value, drawn))
        planned = replace(planned, taken_under=move.key if sure else 0, tickets=known.tickets, move=move)
        new.transact(fleet_rows.join, known, planned, begin)
    raise DatabaseUnavailable(UNSTEADY)


def greatest(one: Given, other: Given) -> Given:
    """What two members have given, each tag as the one has it that gave more of it."""
    tags = {tag.name: tag for tag in sorted([*one.tags, *other.tags], key=lambda tag: tag.max_value)}
    return Given([*tags.values()], one.spaces | other.spaces, *map(max, one[2:], other[2:]))


@dataclass(frozen=True, slots=True)
class Status:
    """A database as `shards list` shows it.

    row: None where it cannot be read. word: what the row says, else the URL. error: why it is not used.
    """

    where: str
    row: Shard | None
    word: Word | None
    error: AllocatorError | None = None

    @property
    def url(self) -> str:
        """What an operator writes, without the password."""
        return f"{self.where}?{ARGUMENT}={self.word}" if self.word else self.where


def status_of(database: Database) -> Status:
    row, word = None, database.address.word
    try:
        row = database.read_row()
        word = row.word
        database.ping()
    except AllocatorError as error:
        return Status(database.shown, row, word, error)
    return Status(database.shown, row, word)


class Holders(NamedTuple):
    """The newest nodes and the worker numbers of all databases that answer, and the errors of the others."""

    nodes: list[Node]
    spaces: list[Space]
    away: list[AllocatorError]


def holders_in(databases: Iterable[Database], most: int) -> Holders:
    """Raises the error of the first database if none answers."""
    found, away = ask(
        databases, lambda database: (database.run(node_rows.fetch_newest, most), database.worker_spaces())
    )
    nodes = [node for of_one, _ in found.values() for node in of_one]
    newest = sorted(nodes, key=lambda node: node.started_at, reverse=True)
    return Holders(
        newest[:most], together(chain.from_iterable(spaces for _, spaces in found.values())), [*away.values()]
    )
