"""`allocator import leaf|tinyid`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from allocator.cli.default_file import DEFAULT_URL
from allocator.cli.options import fleet_options, open_allocator, open_database
from allocator.cli.output import REFUSED, show, wants_json
from allocator.cli.tags import first_id
from allocator.rules.leaf_tinyid import Refusal

if TYPE_CHECKING:
    from allocator.fleet.import_counters import Imported, Server

from_option = click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="URL",
    help="A database with the table of the old server, and no replica of it; may be given again. Else those of --url.",
)


@click.group("import")
def import_counters() -> None:
    """Take over the counters of another id server.

    Each becomes a tag, and goes on above the ids that were given.

    Stop the old servers first. Or let them run only until all clients are switched, then import again and look at the
    warnings: a segment in the memory of a server that runs stays valid, and the ids that it claims after the import
    would be given twice. A tag that is ahead by then brings no warning, since it may have got there by ids of its own;
    so where servers must run on, raise each tag before its first id is drawn, above whatever they will claim:

    \b
        allocator tags set order --start-after 9000000

    Nothing is written to the tables of the old server. May be run again: a tag is only ever raised. Import into a fleet
    before or after it grows, and not meanwhile. Names are compared byte by byte here, so that Order and order are two
    tags, also where the old server took them for one.
    """


@import_counters.command()
@from_option
@fleet_options
def leaf(sources: tuple[str, ...], urls: tuple[str, ...]) -> None:
    """Take over each biz_tag of Leaf as the tag of that name.

    The tags are read from the table leaf_alloc:

    \b
        allocator import leaf --from mysql+pymysql://user:password@old/leaf --url mysql+pymysql://user:password@new/ids

    Stop the Leaf servers first, or let them run only until all clients are switched, then import again and look at the
    warnings: a segment in the memory of a server that runs stays valid, and ids that it claims after the import would
    be given twice.
    """
    from allocator.fleet.import_counters import LEAF

    take_over(LEAF, sources, urls)


@import_counters.command()
@from_option
@fleet_options
def tinyid(sources: tuple[str, ...], urls: tuple[str, ...]) -> None:
    """Take over each biz_type of tinyid as the tag of that name.

    The tags are read from the table tiny_id_info. Where several databases serve a biz_type, each with its remainder,
    all of them are needed:

    \b
        allocator import tinyid --from mysql+pymysql://user:password@one/tinyid
            --from mysql+pymysql://user:password@two/tinyid --url mysql+pymysql://user:password@new/ids

    Stop the tinyid servers and their clients first, or let them run only until all clients are switched, then import
    again and look at the warnings: a segment in the memory of a server or client that runs stays valid, and ids that it
    claims after the import would be given twice.
    """
    from allocator.fleet.import_counters import TINYID

    take_over(TINYID, sources, urls)


def take_over(server: Server, sources: tuple[str, ...], urls: tuple[str, ...]) -> None:
    if urls == (DEFAULT_URL,):
        raise click.UsageError("name the database that the tags are for, with --url or ALLOCATOR_DATABASE_URL")
    outcomes: list[Imported | Refusal] = []
    try:
        for outcome in import_each(server, sources, urls):
            outcomes.append(outcome)
            report(outcome, server.table)
    finally:
        if wants_json() and outcomes:  # also before an error: what was done is done
            show(to_json(outcomes), "")
    if not outcomes:
        show(to_json([]), f"{server.table} is empty: there is nothing to import")
    if any(isinstance(outcome, Refusal) for outcome in outcomes):
        sys.exit(REFUSED)


def import_each(server: Server, sources: tuple[str, ...], urls: tuple[str, ...]) -> Iterator[Imported | Refusal]:
    from allocator.fleet.import_counters import import_all

    with ExitStack() as stack:
        theirs = [stack.enter_context(open_database(url)) for url in sources or urls]
        ids = stack.enter_context(open_allocator(urls))
        yield from import_all(server, theirs, ids.tags, named=bool(sources))


def report(outcome: Imported | Refusal, table: str) -> None:
    """Print it at once, since a warning that was missed is not given again."""
    if isinstance(outcome, Refusal):
        if not wants_json():
            click.echo(f"error: {outcome.message}", err=True)
        return
    if not wants_json():
        click.echo(f"{outcome.tag.name}: {sentence_of(outcome)} (the last was {outcome.tag.max_value} in {table})")
    if outcome.state == "raised":
        warning = f"{outcome.tag.name} {warning_of(outcome, table)}"
        click.echo(json.dumps({"warning": warning}) if wants_json() else f"warning: {warning}", err=True)


def sentence_of(outcome: Imported) -> str:
    if outcome.state == "created":
        return first_id(outcome.tag)
    if outcome.state == "raised":
        return f"raised from {outcome.before}, {first_id(outcome.tag)}"
    return f"is ahead already, at {outcome.before}"


def warning_of(outcome: Imported, table: str) -> str:
    return (
        f"was at {outcome.before}, behind {table}: its server has claimed ids since the import, or the tag was used "
        f"beside it, so ids up to {outcome.before} may exist twice if they were drawn here meanwhile; stop the old "
        "server first, then import again"
    )


def to_json(outcomes: list[Imported | Refusal]) -> dict[str, object]:
    refused = [{"name": one.name, "message": one.message} for one in outcomes if isinstance(one, Refusal)]
    imported = [
        {"tag": one.tag.name, "start_after": str(one.tag.max_value), "state": one.state}
        for one in outcomes
        if not isinstance(one, Refusal)
    ]
    return {"imported": imported, "refused": refused}
