"""`allocator next`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial

import click

from allocator.cli.options import NEEDS_NO_URL, fleet_options, open_allocator, option
from allocator.cli.output import show, wants_json
from allocator.errors import InvalidCount
from allocator.generators.objectid import ObjectId
from allocator.schemes.shared.argument_checks import check_whole

SCHEMES = ("segment", "ticket", "meteor", "snowflake", NEEDS_NO_URL)
TAGGED = ("segment", "ticket")
MAX_PRINTED = 10_000_000


@click.command("next")
@click.argument("tag", default="")
@option("-n", "--count", type=int, default=1, help="Number of ids.")
@option("--scheme", type=click.Choice(SCHEMES), default="segment", help="Scheme of the ids.")
@click.option("--no-create", is_flag=True, help="Fail if the tag does not exist.")
@fleet_options
def next(tag: str, count: int, scheme: str, no_create: bool, urls: tuple[str, ...]) -> None:  # noqa: A001
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
    if bool(tag) != (scheme in TAGGED):
        raise click.UsageError(f"the scheme {scheme} {'takes no TAG' if tag else 'needs a TAG'}")
    check_whole("count", count, 1, MAX_PRINTED, InvalidCount)
    if scheme == NEEDS_NO_URL:
        write(tag, (ObjectId() for _ in range(count)))
        return
    with open_allocator(urls, creates=not no_create) as ids:
        if scheme == "segment":
            write(tag, ids.reserve(tag, count))
        else:
            draws: dict[str, Callable[[], int]] = {"meteor": ids.meteor, "snowflake": ids.snowflake}
            draw = draws.get(scheme) or partial(ids.ticket, tag)
            write(tag, (draw() for _ in range(count)))


def write(tag: str, ids: Iterable[object]) -> None:
    if wants_json():
        show(({"tag": tag} if tag else {}) | {"ids": list(map(str, ids))}, "")
        return
    sys.stdout.writelines(f"{value}\n" for value in ids)
    sys.stdout.flush()
