"""What pages read of the databases: the fleet, counters of numbers. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from allocator.database.store import Database
from allocator.database.verbs import node_and_snowflake_rows, number_columns
from allocator.database.verbs.number_columns import Counter
from allocator.errors import AllocatorError
from allocator.fleet.discovery import Discovery, Found
from allocator.rules.fleet_growth_protocol import LEAD
from allocator.schemes.meteor import Node
from allocator.schemes.snowflake import SnowflakeWorker
from allocator.schemes.worker_number_lease import Space
from allocator.service.console.rows import PAGE, Page, Query, page_number
from allocator.service.metric_updates import spaces_in
from allocator.service.settings import ServeSettings

TIMEOUT = 5.0
"""Seconds for each query, and for each shard."""
NODES = 100
"""The newest ones: there may be a million."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The shards as in `allocator shards list`, nodes, workers and spaces, or the error that prevented the read."""

    shards: list[Found]
    nodes: list[Node]
    workers: list[SnowflakeWorker]
    spaces: list[Space]
    error: AllocatorError | None = None


def connect(settings: ServeSettings, url: str) -> Database:
    """A database with a connection of its own."""
    return Database(url, TIMEOUT, shard_hosts=settings.shard_hosts)


def read_fleet(settings: ServeSettings) -> Fleet:
    with closing(Discovery([connect(settings, url) for url in settings.urls])) as discovery:
        try:
            shards = discovery.shards()
            lead = next((one.database for one in shards if not one.error and is_lead(one)), None)
            if lead is None:
                return Fleet(shards, [], [], [])
            numbered, workers = (
                lead.run(node_and_snowflake_rows.fetch_newest, NODES),
                lead.run(node_and_snowflake_rows.fetch_workers),
            )
            return Fleet(shards, numbered, workers, spaces_in(lead))
        except AllocatorError as error:
            return Fleet([], [], [], [], error)


def is_lead(shard: Found) -> bool:
    """Tell whether a database holds the nodes and leases: the first shard of a fleet, or a single database."""
    return shard.row is None or (shard.row.numbering.offset == LEAD and not shard.row.joining)


@dataclass(frozen=True, slots=True)
class Numbered:
    """A page of the counters of numbers, or the error that prevented the read."""

    page: Page
    rows: Sequence[Counter]
    where: str
    error: AllocatorError | None = None


def read_numbers(settings: ServeSettings, query: Query) -> Numbered:
    """Read the counters of the first database; applications have theirs beside their rows."""
    with closing(connect(settings, settings.urls[0])) as database:
        try:
            found = database.run(number_columns.count_counters, query.text)
            number, pages = page_number(query.page, found)
            rows = database.run(number_columns.fetch_page, query.text, (number - 1) * PAGE, PAGE)
            return Numbered(Page((), number, pages, found, found), rows, database.address.shown)
        except AllocatorError as error:
            return Numbered(Page((), 1, 1, 0, 0), (), database.address.shown, error)
