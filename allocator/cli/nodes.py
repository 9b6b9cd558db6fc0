"""`allocator nodes list`."""

from __future__ import annotations

import click

from allocator.cli.options import database_options, open_database, option
from allocator.cli.output import show
from allocator.database.verbs import node_and_snowflake_rows as rows
from allocator.schemes.meteor import Node


@click.group()
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
    show([node_to_json(node) for node in found], "\n".join(map(line_of, found)) or "no nodes are registered")


def node_to_json(node: Node) -> dict[str, object]:
    return {
        "node": node.number,
        "host": node.host,
        "process": node.process,
        "version": node.version,
        "started_at": node.started_at.isoformat(),
    }


def line_of(node: Node) -> str:
    return f"{node.number:>8}  {node.started_at:%Y-%m-%d %H:%M:%S} UTC  {node.host}  {node.process}  {node.version}"
