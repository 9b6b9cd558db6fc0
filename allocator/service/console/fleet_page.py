"""Shards, nodes and leases as they are now. Blocking, on connections of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from allocator.database.store import Database
from allocator.database.verbs import nodes
from allocator.errors import AllocatorError
from allocator.fleet.discovery import Found, Roster, state_of
from allocator.rules.hosts import Hosts
from allocator.schemes.leases import Node, Worker
from allocator.service.console.formatting import NONE

NODES = 100


@dataclass(frozen=True, slots=True)
class ShardRow:
    place: str
    where: str
    last: int | None
    state: str
    is_well: bool


@dataclass(frozen=True, slots=True)
class State:
    """`shards` as the command `shards list` prints them; `error` says why the fleet cannot be told as a whole."""

    shards: list[ShardRow]
    nodes: list[Node]
    workers: list[Worker]
    error: AllocatorError | None = None


def look_at(urls: Sequence[str], timeout: float, shard_hosts: Hosts = ()) -> State:
    roster = Roster([Database(url, timeout, shard_hosts=shard_hosts) for url in urls])
    try:
        found = roster.shards()
        lead = next((one for one in found if not one.error and is_lead(one)), None)
        nodes, workers = numbered(lead.database) if lead else ([], [])
        return State([row_of(one) for one in found], nodes, workers)
    except AllocatorError as error:
        return State([], [], [], error)
    finally:
        roster.close()


def is_lead(one: Found) -> bool:
    """What a fleet has only once stands in its first shard; a database that is none has it itself."""
    return one.row is None or (one.row.numbering.offset == 1 and not one.row.joining)


def numbered(database: Database) -> tuple[list[Node], list[Worker]]:
    return database.run(nodes.fetch_newest, NODES), database.run(nodes.fetch_workers)


def row_of(one: Found) -> ShardRow:
    row = one.row
    place = f"{row.numbering.offset} of {row.numbering.step}" if row and not row.joining else NONE
    state = state_of(one)
    return ShardRow(place, one.where, one.last if row else None, state, one.is_well)


def is_leased(worker: Worker, clock: float) -> bool:
    return worker.until > clock * 1000
