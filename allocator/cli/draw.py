"""`allocator next`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from allocator.cli.options import command, show
from allocator.objectid import ObjectId
from allocator.schemes.limits import check_reserve
from allocator.sync import Allocator

SCHEMES = ("segment", "meteor", "snowflake", "objectid")


@click.command("next")
@click.argument("tag", required=False)
@click.option("-n", "count", type=int, default=1, show_default=True, help="How many ids.")
@click.option("--scheme", type=click.Choice(SCHEMES), default="segment", show_default=True, help="What kind of id.")
@click.option("--no-create", is_flag=True, help="Refuse a tag that does not exist, instead of making it.")
@command
def next_ids(tag: str | None, count: int, scheme: str, no_create: bool, url: str, as_json: bool) -> None:
    """Print the next ids of TAG, one a line.

    Exactly as many as are asked for are claimed, and none is wasted. They are one contiguous block. The other schemes
    have no TAG; a meteor registers a node, and a snowflake leases a worker.

    \b
    Examples:
        allocator next order
        allocator next order -n 5 --json
        allocator next --scheme snowflake -n 5
    """
    if (tag is None) == (scheme == "segment"):
        raise click.UsageError("a TAG is needed" if tag is None else f"the scheme {scheme} has no TAG")
    check_reserve(count)
    if scheme == "objectid":
        write(tag, (str(ObjectId()) for _ in range(count)), as_json)
        return
    with Allocator(url, create_missing=not no_create) as ids:
        if tag is not None:
            write(tag, map(str, ids.reserve(tag, count)), as_json)
        else:
            draw = ids.meteor if scheme == "meteor" else ids.snowflake
            write(tag, (str(draw()) for _ in range(count)), as_json)


def write(tag: str | None, ids: Iterable[str], as_json: bool) -> None:
    if as_json:
        show(True, {"tag": tag, "ids": list(ids)} if tag else {"ids": list(ids)}, "")
    else:
        sys.stdout.writelines(f"{value}\n" for value in ids)
