"""What the page of the fleet reads of the databases. Blocking."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from allocator.database.store import Database
from allocator.database.verbs import node_and_snowflake_rows
from allocator.errors import AllocatorError
from allocator.fleet.discovery import Discovery, Found
from allocator.rules.fleet_growth_protocol import LEAD
from allocator.schemes.meteor import Node
from allocator.schemes.snowflake import SnowflakeWorker
from allocator.schemes.worker_number_lease import Space
from allocator.service.settings import ServeSettings

TIMEOUT = 5.0
"""Seconds for each query, and for each shard."""
NODES = 100
"""The newest ones: there may be a million."""


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The shards as in `allocator shards list`, nodes, workers and spaces, or the error that prevented the read."""

    shards: list[Found]
    nodes: list[Node]
    workers: list[SnowflakeWorker]
    spaces: list[Space]
    error: AllocatorError | None = None


def read_fleet(settings: ServeSettings) -> FleetStatus:
    databases = [Database(url, TIMEOUT, shard_hosts=settings.shard_hosts) for url in settings.urls]
    with closing(Discovery(databases)) as discovery:
        try:
            shards = discovery.shards()
            lead = lead_of(shards)
            if lead is None:
                return FleetStatus(shards, [], [], [])
            nodes = lead.run(node_and_snowflake_rows.fetch_newest, NODES)
            workers = lead.run(node_and_snowflake_rows.fetch_workers)
            return FleetStatus(shards, nodes, workers, lead.worker_spaces())
        except AllocatorError as error:
            return FleetStatus([], [], [], [], error)


def lead_of(shards: list[Found]) -> Database | None:
    """The database that holds the nodes and leases, if it answers: the first shard of a fleet, or a database alone."""
    for one in shards:
        is_lead = one.row.numbering.offset == LEAD and not one.row.joining if one.row else len(shards) == 1
        if is_lead and not one.error:
            return one.database
    return None
