"""`allocator next`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from allocator.cli.options import fleet_command, ids_of, show
from allocator.cli.output import check_open
from allocator.generators.objectid import ObjectId
from allocator.schemes.checks import check_reserve

SCHEMES = ("segment", "ticket", "meteor", "snowflake", "objectid")
TAGGED = ("segment", "ticket")


@click.command("next")
@click.argument("tag", required=False)
@click.option("-n", "count", type=int, default=1, show_default=True, help="How many ids.")
@click.option("--scheme", type=click.Choice(SCHEMES), default="segment", show_default=True, help="What kind of id.")
@click.option("--no-create", is_flag=True, help="Refuse a tag that does not exist, instead of making it.")
@fleet_command
def next_ids(tag: str | None, count: int, scheme: str, no_create: bool, urls: tuple[str, ...], as_json: bool) -> None:
    """Print the next ids of TAG, one a line.

    Exactly as many as are asked for are claimed, and none is wasted. They are one contiguous block, or with several
    shards one of their step. The other schemes have no TAG, but for a ticket, whose type it is; a meteor registers a
    node, and a snowflake leases a worker.

    \b
    Examples:
        allocator next order
        allocator next order -n 5 --json
        allocator next --scheme snowflake -n 5
        allocator next --scheme ticket invoice --url mysql+pymysql://… --url mysql+pymysql://…
    """
    if (tag is None) == (scheme in TAGGED):
        raise click.UsageError("a TAG is needed" if tag is None else f"the scheme {scheme} has no TAG")
    check_open()
    check_reserve(count)
    if scheme == "objectid":
        write(tag, (str(ObjectId()) for _ in range(count)), as_json)
        return
    with ids_of(urls, create_missing=not no_create) as ids:
        if tag is not None and scheme == "ticket":
            write(tag, (str(ids.ticket(tag)) for _ in range(count)), as_json)
        elif tag is not None:
            write(tag, map(str, ids.reserve(tag, count)), as_json)
        else:
            draw = ids.meteor if scheme == "meteor" else ids.snowflake
            write(tag, (str(draw()) for _ in range(count)), as_json)


def write(tag: str | None, ids: Iterable[str], as_json: bool) -> None:
    if as_json:
        show(True, {"tag": tag, "ids": list(ids)} if tag else {"ids": list(ids)}, "")
    else:
        sys.stdout.writelines(f"{value}\n" for value in ids)
