"""`allocator nodes list`."""

from __future__ import annotations

import click

from allocator.cli.options import database_options, open_database, option
from allocator.cli.output import CommandGroup, show_rows
from allocator.database.verbs import node_and_snowflake_rows as rows
from allocator.schemes.meteor import Node


@click.group(cls=CommandGroup)
def nodes() -> None:
    """List the registered nodes of meteor generators."""


@nodes.command("list")
@option("--last", type=click.IntRange(1, 100_000), default=100, help="Number of nodes, newest first.")
@database_options
def list_nodes(last: int, url: str) -> None:
    """Print the newest nodes: one per start, with host and process."""
    with open_database(url) as database:
        database.check_sound()
        found = database.run(rows.fetch_newest, last)
    show_rows([to_row(node) for node in found], "node started_at host process version")


def to_row(node: Node) -> dict[str, object]:
    return {
        "node": node.number,
        "host": node.host,
        "process": node.process,
        "version": node.version,
        "started_at": node.started_at,
    }
