"""`allocator shards list|add|grow|trust`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from allocator.cli.options import TIMEOUT, fleet_options, open_database, option, shard_hosts
from allocator.cli.output import CommandGroup, show, show_rows
from allocator.database.store import Database
from allocator.fleet.discovery import Found, state_of
from allocator.fleet.grow import Growth
from allocator.rules.fleet_growth_protocol import HEADROOM

headroom_option = option(
    "--headroom", type=click.IntRange(0, 10**12), default=HEADROOM, help="Tickets to skip on each shard."
)

without_option = click.option("--without", metavar="URL", multiple=True, help="A permanently lost shard; repeatable.")


@click.group(cls=CommandGroup)
def shards() -> None:
    """List the shards of a fleet, and add more.

    \b
    From one database to two, while clients draw ids:
        allocator shards add  mysql+pymysql://user:password@new/ids --url mysql+pymysql://user:password@old/ids
        allocator shards grow --url mysql+pymysql://user:password@old/ids

    Give --url once per shard. One --url is enough if all shards share its user and password, and are on its host or on
    one of ALLOCATOR_SHARD_HOSTS.
    """


@contextmanager
def growing(urls: tuple[str, ...], without: tuple[str, ...] = ()) -> Iterator[Growth]:
    growth = Growth([Database(url, TIMEOUT, shard_hosts=shard_hosts()) for url in urls])
    growth.leave_out([Database(url, TIMEOUT) for url in without])
    try:
        yield growth
    finally:
        growth.close()


@shards.command("list")
@fleet_options
def list_shards(urls: tuple[str, ...]) -> None:
    """Print each shard, its greatest ticket and its state."""
    with growing(urls) as growth:
        found = growth.shards()
    show_rows([to_row(one) for one in found], "offset step database last state")


@shards.command("add")
@click.argument("new", metavar="URL")
@without_option
@fleet_options
def add_shard(new: str, without: tuple[str, ...], urls: tuple[str, ...]) -> None:
    """Add the empty database URL to the fleet. It issues no ids before `grow`. Safe to repeat."""
    with growing(urls, without) as growth:
        growth.begin()
        target = growth.add(Database(new, TIMEOUT))
    coming = [member.url for member in target.members]
    show(
        {"shards": coming},
        f"{coming[-1]} will be shard {len(coming)}; now run, with the same --url: allocator shards grow",
    )


@shards.command("grow")
@headroom_option
@click.option("--take-back", is_flag=True, help="Undo the growth, until the first shard has switched.")
@without_option
@click.option("--above", type=click.IntRange(0), help="A number no id or ticket of a lost shard exceeds.")
@fleet_options
def grow_fleet(
    headroom: int, take_back: bool, without: tuple[str, ...], above: int | None, urls: tuple[str, ...]
) -> None:
    """Start using the added shards, while clients draw ids.

    All shards must answer, except those named by --without. If it is interrupted, run it again. Clients follow without
    a restart.
    """
    if above is not None and not without:
        raise click.UsageError("--above is about a lost shard, and needs --without URL")
    with growing(urls, without) as growth:
        if take_back:
            done = growth.take_back()
            show({"taken_back": done}, "growth undone" if done else "no growth to undo")
            return
        lead = growth.grow(headroom, above)
    step, floor = lead.numbering.step, lead.numbering.floor
    show(
        {"shards": step, "generation": lead.generation, "floor": str(floor)},
        f"{step} shards, generation {lead.generation}: tickets continue from {floor}",
    )


@shards.command("trust")
@click.argument("shard", metavar="URL")
@headroom_option
@click.option("--above", type=click.IntRange(0), help="A number no issued ticket exceeds, if the shards do not know.")
@fleet_options
def trust_shard(shard: str, headroom: int, above: int | None, urls: tuple[str, ...]) -> None:
    """Let a shard continue after a failover or a restore.

    The tickets of the shard URL continue above those of every shard. First make sure that no process uses the old
    server. To raise a tag, use: allocator tags set TAG --start-after N
    """
    with growing((*urls, shard)) as growth, open_database(shard, creates=True) as database:
        row = growth.trust(database, headroom, above)
    floor = row.numbering.following(0)
    show({"floor": str(floor)}, f"{database.address.shown} continues from {floor}")


def to_row(one: Found) -> dict[str, object]:
    numbering = one.row.numbering if one.row else None
    return {
        "offset": numbering.offset if numbering else None,
        "step": numbering.step if numbering else None,
        "database": one.where,
        "last": str(one.last),
        "state": state_of(one),
    }
