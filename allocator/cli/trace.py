"""`allocator trace`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TextIO

import click

from allocator.cli.nodes import node_to_json
from allocator.cli.options import fleet_options, open_fleet, require_files
from allocator.cli.output import REFUSED, show, wants_json
from allocator.doctor.tracing import Traced, claims_of, trace
from allocator.rules.claim_log import Claimed
from allocator.schemes.layout import layout_from_text
from allocator.schemes.meteor import EPOCH, METEOR, MeteorSettings

NOTHING = "nothing is known of {0}: no registered node drew it as a meteor"
NO_LOG = "; give the log of claims with --log FILE for an id of a tag"
NOT_IN_LOG = ", and no claim in this log holds it"


@click.command("trace")
@click.argument("id_", metavar="ID")
@click.option(
    "--log", type=click.File(errors="replace"), help="A log with the records of allocator.claims; - is stdin."
)
@click.option("--tag", help="An id of this tag; else of any, since each tag has ids of its own.")
@click.option("--epoch", type=int, help="The epoch of the meteors in seconds, where it is not the default one.")
@click.option("--layout", metavar="WIDTHS", help="Their layout, the default one is 1/29/20/11/3.")
@fleet_options
def trace_command(
    id_: str,
    log: TextIO | None,
    tag: str | None,
    epoch: int | None,
    layout: str | None,
    urls: tuple[str, ...],
) -> None:
    """Say which process got ID, and when.

    For an id of a tag, give the log that holds the records of the logger allocator.claims (one for each claim, at the
    level DEBUG). A meteor is found by its node in the database, as of the usual format unless --epoch or --layout
    name another. The exit code is 1 when nothing is known. A shard that does not answer is named on stderr.

    \b
    Examples:
        allocator trace 120345 --log app.log --tag order
        zcat claims.*.gz | allocator trace 120345 --log - --json
        allocator trace 5016762319896585 --epoch 1735689600 --layout 1/31/18/11/3
    """
    claims = claims_of(id_, log or (), tag)
    found = None
    if tag is None:
        require_files(*urls)
        with open_fleet(urls) as databases:
            found = trace(databases, id_, settings_of(epoch, layout))
        for why in found.silent:
            click.echo(f"one shard did not answer: {why}", err=True)
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
    ahead = f"; its time lies in the future, {found.at:%Y-%m-%d %H:%M:%S} UTC" if is_ahead(found) else ""
    whose = f"it is of node {node.number}, registered at {node.started_at:%Y-%m-%d %H:%M:%S} UTC"
    by = f"by process {node.process} on {node.host}, allocator {node.version}"
    return [f"read as a meteor of {words_of(found.meteor)}, {whose} {by}{ahead}"]


def words_of(form: MeteorSettings) -> str:
    return "the usual format" if form == MeteorSettings() else f"layout {form.layout} and epoch {form.epoch}"
