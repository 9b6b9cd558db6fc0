"""`allocator trace`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from allocator.cli.db import QUICK
from allocator.cli.nodes import described as described_node
from allocator.cli.options import REFUSED, fleet_command, show

if TYPE_CHECKING:
    from allocator.schemes.ledger import Entry
    from allocator.schemes.registry import Node

NOTHING = "no claim of {0} is on record: its process kept no ledger then, or the entry is older than it is kept"


@click.command("trace")
@click.argument("id_", metavar="ID")
@click.option("--tag", help="An id of this tag; else of any, since each tag has ids of its own.")
@fleet_command
def trace_command(id_: str, tag: str | None, urls: tuple[str, ...], as_json: bool) -> None:
    """Say which process got ID, and when.

    Of segments the ledger tells, where a process kept one: Allocator(…, ledger=True), or allocator serve --ledger. A
    meteor is told by the node in it. The exit code is 1 when nothing is on record. A shard that does not answer is
    said to be missing from the answer.

    \b
    Examples:
        allocator trace 120345
        allocator trace 120345 --tag order --json
    """
    from allocator.backend import databases_at
    from allocator.tracing import trace

    with databases_at(urls, QUICK) as databases:
        entries, node, silent = trace(databases, id_, tag)
    for why in silent:
        click.echo(f"one shard was not asked: {why}", err=True)
    lines = [*map(line, entries), *([line_of_node(node)] if node else [])]
    if not lines and not as_json:
        click.echo(NOTHING.format(id_), err=True)
    else:
        found = {
            "claims": [described(one) for one in entries],
            "node": described_node(node) if node else None,
            "not_asked": [str(why) for why in silent],
        }
        show(as_json, found, "\n".join(lines))
    if not lines:
        sys.exit(REFUSED)


def described(entry: Entry) -> dict[str, object]:
    ids = entry.ids
    return {
        "tag": entry.tag,
        "first": str(ids[0]),
        "last": str(ids[-1]),
        "step": str(ids.step),
        **entry.author._asdict(),
        "claimed_at": entry.claimed_at.isoformat(),
    }


def line(entry: Entry) -> str:
    ids, author = entry.ids, entry.author
    each = f" in steps of {ids.step}" if ids.step > 1 else ""
    return (
        f"{entry.tag}: {ids[0]} to {ids[-1]}{each} were claimed at {entry.claimed_at:%Y-%m-%d %H:%M:%S} UTC "
        f"by process {author.process} on {author.host}, allocator {author.version}"
    )


def line_of_node(node: Node) -> str:
    return (
        f"as a meteor: of node {node.number}, registered at {node.started_at:%Y-%m-%d %H:%M:%S} UTC "
        f"by process {node.process} on {node.host}, allocator {node.version}"
    )
