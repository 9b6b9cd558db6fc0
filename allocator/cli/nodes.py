"""`allocator nodes list`."""

from __future__ import annotations

import click

from allocator.cli.db import QUICK, opened
from allocator.cli.options import command, show
from allocator.schemes.leases import Node


@click.group()
def nodes() -> None:
    """Look at the registered nodes of meteor generators."""


@nodes.command("list")
@click.option("--last", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many, newest first.")
@command
def list_nodes(last: int, url: str, as_json: bool) -> None:
    """Print the newest nodes: a row for every start, with who started."""
    from allocator.database.verbs import nodes as rows  # imports SQLAlchemy

    with opened(url, QUICK) as database:
        database.check_schema()
        found = database.run(rows.fetch_newest, last)
    show(as_json, [described(node) for node in found], "\n".join(map(line, found)) or "no nodes are registered")


def described(node: Node) -> dict[str, object]:
    return {
        "node": node.number,
        "host": node.host,
        "process": node.process,
        "version": node.version,
        "started_at": node.started_at.isoformat(),
    }


def line(node: Node) -> str:
    return f"{node.number:>8}  {node.started_at:%Y-%m-%d %H:%M:%S} UTC  {node.host}  {node.process}  {node.version}"
