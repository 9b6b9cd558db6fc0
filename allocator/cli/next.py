"""`allocator next`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from allocator.cli.options import open_allocator, option, optional_fleet_options, required
from allocator.cli.output import show, wants_json
from allocator.errors import InvalidCount
from allocator.generators.objectid import ObjectId
from allocator.schemes.shared.argument_checks import check_whole

SCHEMES = ("segment", "ticket", "meteor", "snowflake", "objectid")
TAGGED = ("segment", "ticket")
MAX_PRINTED = 10_000_000


@click.command("next")
@click.argument("tag", required=False)
@option("-n", "--count", type=int, default=1, help="Number of ids.")
@option("--scheme", type=click.Choice(SCHEMES), default="segment", help="Scheme of the ids.")
@click.option("--no-create", is_flag=True, help="Fail if the tag does not exist.")
@optional_fleet_options
def next(tag: str | None, count: int, scheme: str, no_create: bool, urls: tuple[str, ...]) -> None:  # noqa: A001
    """Print the next ids of TAG, one per line.

    Claims exactly this many ids, as one contiguous block. In a fleet of S slots, they are S apart.

    For a ticket, TAG is the ticket type. The other schemes take no TAG. A meteor registers a node, and a snowflake
    leases a worker.

    \b
    Examples:
        allocator next order
        allocator next order -n 5 --json
        allocator next --scheme snowflake -n 5
        allocator next --scheme ticket job --url 'mysql+pymysql://…?shard=7f3a91c2.1' --url …
    """
    if (tag is None) == (scheme in TAGGED):
        raise click.UsageError(
            f"the scheme {scheme} needs a TAG" if tag is None else f"the scheme {scheme} takes no TAG"
        )
    check_whole("count", count, 1, MAX_PRINTED, InvalidCount)
    if scheme == "objectid":
        write(tag, (ObjectId() for _ in range(count)))
        return
    with open_allocator(required(urls), creates=not no_create) as ids:
        if tag is not None and scheme == "ticket":
            write(tag, (ids.ticket(tag) for _ in range(count)))
        elif tag is not None:
            write(tag, ids.reserve(tag, count))
        else:
            draw = ids.meteor if scheme == "meteor" else ids.snowflake
            write(tag, (draw() for _ in range(count)))


def write(tag: str | None, ids: Iterable[object]) -> None:
    if wants_json():
        show(({"tag": tag} if tag else {}) | {"ids": list(map(str, ids))}, "")
        return
    sys.stdout.writelines(f"{value}\n" for value in ids)
    sys.stdout.flush()
