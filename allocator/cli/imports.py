"""`allocator import leaf|tinyid`."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack

import click

from allocator.cli.options import fleet_options, open_allocator, open_database
from allocator.cli.output import REFUSED, show, wants_json
from allocator.cli.tags import first_id
from allocator.fleet.import_counters import LEAF, TINYID, Imported, Server, import_all
from allocator.rules.leaf_tinyid import Refusal

from_option = click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="URL",
    help="Database of the old server, not a replica; repeatable. Default: --url.",
)


@click.group("import")
def import_counters() -> None:
    """Take over the counters of another id server.

    Each counter becomes a tag that continues above the ids already issued.

    Stop the old servers first: ids that they claim after the import would be issued twice. If they must run until all
    clients are switched, raise each tag above every id that they will claim, before its first use:

    \b
        allocator tags set order --start-after 9000000

    Then import again and read the warnings. They are incomplete: a tag that is ahead of the old counter brings no
    warning, since it may have issued ids of its own.

    The import writes nothing to the old server. It is safe to repeat, since it never lowers a tag. Do not import while
    a fleet grows. Tag names are case-sensitive, even if the old server ignored case.
    """


@import_counters.command()
@from_option
@fleet_options
def leaf(sources: tuple[str, ...], urls: tuple[str, ...]) -> None:
    """Take over each biz_tag of Leaf as the tag of that name.

    Reads the table leaf_alloc:

    \b
        allocator import leaf --from mysql+pymysql://user:password@old/leaf --url mysql+pymysql://user:password@new/ids

    Stop the Leaf servers first: ids that they claim after the import would be issued twice. Or let them run until all
    clients are switched, then import again and read the warnings (see: allocator import --help).
    """
    take_over(LEAF, sources, urls)


@import_counters.command()
@from_option
@fleet_options
def tinyid(sources: tuple[str, ...], urls: tuple[str, ...]) -> None:
    """Take over each biz_type of tinyid as the tag of that name.

    Reads the table tiny_id_info. If several databases serve a biz_type, each with its own remainder, name them all:

    \b
        allocator import tinyid --from mysql+pymysql://user:password@one/tinyid
            --from mysql+pymysql://user:password@two/tinyid --url mysql+pymysql://user:password@new/ids

    Stop the tinyid servers and their clients first: ids that they claim after the import would be issued twice. Or let
    them run until all clients are switched, then import again and read the warnings (see: allocator import --help).
    """
    take_over(TINYID, sources, urls)


def take_over(server: Server, sources: tuple[str, ...], urls: tuple[str, ...]) -> None:
    outcomes: list[Imported | Refusal] = []
    try:
        with ExitStack() as stack:
            theirs = [stack.enter_context(open_database(url, creates=True)) for url in sources or urls]
            ids = stack.enter_context(open_allocator(urls, creates=True))
            for outcome in import_all(server, theirs, ids.tags, named=bool(sources)):
                outcomes.append(outcome)
                report(outcome, server.table)
    finally:
        if wants_json() and outcomes:  # also before an error: these tags are imported
            show(to_json(outcomes), "")
    if not outcomes:
        show(to_json([]), f"nothing to import: {server.table} is empty")
    if any(isinstance(outcome, Refusal) for outcome in outcomes):
        sys.exit(REFUSED)


def report(outcome: Imported | Refusal, table: str) -> None:
    """Print the outcome at once: a second import would not repeat its warning."""
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
    return f"unchanged, already at {outcome.before}"


def warning_of(outcome: Imported, table: str) -> str:
    return (
        f"was at {outcome.before}, behind {table}: the old server claimed ids after the last import, or both issued "
        f"ids at the same time. Ids up to {outcome.before} may exist twice if they were drawn here; stop the old "
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
