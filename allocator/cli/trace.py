"""`allocator trace`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TextIO

import click

from allocator.cli.nodes import node_to_json
from allocator.cli.options import fleet_options, open_fleet
from allocator.cli.output import REFUSED, show, wants_json
from allocator.doctor.tracing import Traced, claims_of, trace
from allocator.rules.claim_log import Claimed
from allocator.schemes.formats.bit_layout import layout_from_text
from allocator.schemes.meteor import EPOCH, METEOR, MeteorSettings

NOTHING = "no trace of {0}: it is no meteor of a registered node"
NO_LOG = "; for an id of a tag, add --log FILE"
NOT_IN_LOG = ", and no claim in this log holds it"


@click.command("trace")
@click.argument("id_", metavar="ID")
@click.option("--log", type=click.File(errors="replace"), help="Log with records of allocator.claims; - is stdin.")
@click.option("--tag", help="Tag of the id. Default: search all tags.")
@click.option("--epoch", type=int, help="Epoch of the meteors, in seconds since 1970.")
@click.option("--layout", metavar="WIDTHS", help="Layout of the meteors. Default: 1/29/20/11/3.")
@fleet_options
def trace_command(
    id_: str, log: TextIO | None, tag: str | None, epoch: int | None, layout: str | None, urls: tuple[str, ...]
) -> None:
    """Print which process drew ID, and when.

    For an id of a tag, pass a log of your application with the records of the logger allocator.claims, at level DEBUG.
    A meteor needs no log: the database knows its node.

    The exit code is 1 if there is no trace. Shards that do not answer are named on stderr.

    \b
    Examples:
        allocator trace 120345 --log app.log --tag order
        zcat claims.*.gz | allocator trace 120345 --log - --json
        allocator trace 5016762319896585 --epoch 1735689600 --layout 1/31/18/11/3
    """
    claims = claims_of(id_, log or (), tag)
    found = None
    if tag is None:
        with open_fleet(urls) as databases:
            found = trace(databases, id_, settings_of(epoch, layout))
        for why in found.silent:
            click.echo(f"warning: a shard did not answer: {why}", err=True)
    lines = [*map(line_of, claims), *(lines_of_node(found) if found else ())]
    if not lines and not wants_json():
        click.echo(NOTHING.format(id_) + (NOT_IN_LOG if log else NO_LOG), err=True)
    else:
        show(to_json(claims, found), "\n".join(lines))
    if not lines:
        sys.exit(REFUSED)


def settings_of(epoch: int | None, layout: str | None) -> MeteorSettings:
    form = METEOR if layout is None else layout_from_text(layout, METEOR)
    return MeteorSettings(EPOCH if epoch is None else epoch, form).checked()


def to_json(claims: list[Claimed], found: Traced | None) -> dict[str, object]:
    return {
        "claims": [claim_to_json(one) for one in claims],
        "node": {**node_to_json(found.node), **reading_of(found)} if found and found.node else None,
        "not_asked": [str(why) for why in found.silent] if found else [],
    }


def reading_of(found: Traced) -> dict[str, object]:
    """The id read as a meteor."""
    form = found.meteor
    return {
        "layout": str(form.layout),
        "epoch": form.epoch,
        "time": found.at.isoformat(),
        "in_the_future": is_ahead(found),
    }


def is_ahead(found: Traced) -> bool:
    return found.at > datetime.now(UTC)


def claim_to_json(claim: Claimed) -> dict[str, object]:
    ids = claim.ids
    return {
        "tag": claim.tag,
        "first": str(ids[0]),
        "last": str(ids[-1]),
        "step": str(ids.step),
        "host": claim.host,
        "process": claim.process,
        "claimed_at": claim.at.isoformat(),
        "database": claim.database,
    }


def line_of(claim: Claimed) -> str:
    ids = claim.ids
    each = f" in steps of {ids.step}" if ids.step > 1 else ""
    return (
        f"{claim.tag}: {ids[0]} to {ids[-1]}{each} were claimed at {claim.at:%Y-%m-%d %H:%M:%S} UTC "
        f"by process {claim.process} on {claim.host}, from {claim.database}"
    )


def lines_of_node(found: Traced) -> list[str]:
    node = found.node
    if node is None:
        return []
    ahead = f"; its time is in the future, {found.at:%Y-%m-%d %H:%M:%S} UTC" if is_ahead(found) else ""
    origin = f"node {node.number}, registered at {node.started_at:%Y-%m-%d %H:%M:%S} UTC"
    by = f"by process {node.process} on {node.host}, allocator {node.version}"
    return [f"as a meteor of {describe(found.meteor)}: {origin} {by}{ahead}"]


def describe(form: MeteorSettings) -> str:
    return "the default format" if form == MeteorSettings() else f"layout {form.layout} and epoch {form.epoch}"
