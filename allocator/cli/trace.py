"""`allocator trace`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from allocator.cli.db import QUICK
from allocator.cli.nodes import described as described_node
from allocator.cli.options import REFUSED, fleet_command, shard_hosts, show

if TYPE_CHECKING:
    from allocator.schemes.ledger import Entry
    from allocator.schemes.meteor import MeteorSettings
    from allocator.tracing import Traced

NOTHING = "no claim of {0} is on record: its process kept no ledger then, or the entry is older than it is kept"


@click.command("trace")
@click.argument("id_", metavar="ID")
@click.option("--tag", help="An id of this tag; else of any, since each tag has ids of its own.")
@click.option("--epoch", type=int, help="The epoch of the meteors in seconds, where it is not the default one.")
@click.option("--layout", metavar="WIDTHS", help="Their layout, the default one is 1/29/20/11/3.")
@fleet_command
def trace_command(
    id_: str, tag: str | None, epoch: int | None, layout: str | None, urls: tuple[str, ...], as_json: bool
) -> None:
    """Say which process got ID, and when.

    Of segments the ledger tells, where a process kept one: Allocator(…, ledger=True), or allocator serve --ledger. A
    meteor is told by the node in it, as of the usual format unless --epoch or --layout name another: the number tells
    neither its format nor whether it is a meteor at all. The exit code is 1 when nothing is on record. A shard that
    does not answer is said to be missing from the answer.

    \b
    Examples:
        allocator trace 120345
        allocator trace 120345 --tag order --json
        allocator trace 5016762319896585 --epoch 1735689600 --layout 1/31/18/11/3
    """
    from allocator.backend import databases_at
    from allocator.tracing import trace

    with databases_at(urls, QUICK, shard_hosts()) as databases:
        found = trace(databases, id_, tag, settings_of(epoch, layout))
    for why in found.silent:
        click.echo(f"one shard was not asked: {why}", err=True)
    lines = [*map(line, found.entries), *lines_of_node(found)]
    if not lines and not as_json:
        click.echo(NOTHING.format(id_), err=True)
    else:
        show(as_json, told(found), "\n".join(lines))
    if not lines:
        sys.exit(REFUSED)


def settings_of(epoch: int | None, layout: str | None) -> MeteorSettings:
    from allocator.schemes.layout import layout_from_text
    from allocator.schemes.meteor import EPOCH, METEOR, MeteorSettings

    form = METEOR if layout is None else layout_from_text(layout, METEOR)
    return MeteorSettings(EPOCH if epoch is None else epoch, form).checked()


def told(found: Traced) -> dict[str, object]:
    return {
        "claims": [described(one) for one in found.entries],
        "node": {**described_node(found.node), **read_as(found)} if found.node else None,
        "not_asked": [str(why) for why in found.silent],
    }


def read_as(found: Traced) -> dict[str, object]:
    """What the number was taken for."""
    form = found.meteor
    return {
        "layout": str(form.layout),
        "epoch": form.epoch,
        "time": found.at.isoformat(),
        "in_the_future": is_ahead(found),
    }


def is_ahead(found: Traced) -> bool:
    return found.at > datetime.now(UTC)


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


def lines_of_node(found: Traced) -> list[str]:
    node = found.node
    if node is None:
        return []
    ahead = f"; its time lies in the future, {found.at:%Y-%m-%d %H:%M:%S} UTC" if is_ahead(found) else ""
    whose = f"it is of node {node.number}, registered at {node.started_at:%Y-%m-%d %H:%M:%S} UTC"
    by = f"by process {node.process} on {node.host}, allocator {node.version}"
    return [f"read as a meteor of {words_of(found.meteor)}, {whose} {by}{ahead}"]


def words_of(form: MeteorSettings) -> str:
    from allocator.schemes.meteor import MeteorSettings

    return "the usual format" if form == MeteorSettings() else f"layout {form.layout} and epoch {form.epoch}"
