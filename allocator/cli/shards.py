"""`allocator shards make|add|list`."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace

import click

from allocator.cli.options import TIMEOUT, database_options, fleet_options, open_database, open_databases
from allocator.cli.output import REFUSED, CommandGroup, show_for_pipe, show_rows
from allocator.database.address import address_of
from allocator.database.store import Database
from allocator.fleet.commands import Status, add, make, status_of
from allocator.schemes.shared.residues import MAX_SLOTS
from allocator.schemes.slots import unasked


@click.group(cls=CommandGroup)
def shards() -> None:
    """Make a fleet of several databases, and list its slots.

    \b
    From one database to two, while clients draw ids:
        allocator shards make --slots 4 --url mysql+pymysql://user:password@old/ids
        allocator shards add mysql+pymysql://user:password@new/ids --slot 2 \\
            --url 'mysql+pymysql://user:password@old/ids?shard=7f3a91c2.1'
    """


@shards.command("make")
@click.option("--slots", type=click.IntRange(2, MAX_SLOTS), required=True, help="Databases at most, for ever.")
@database_options
def make_fleet(slots: int, url: str) -> None:
    """Make the database slot 1 of a new fleet, while clients draw ids.

    From then on it gives one number of each S, and the number of slots never changes. Take more than you need: a slot
    that is lost is not used again.
    """
    with open_database(url, creates=True) as database:
        make(database, slots)
        made = status_of(database)
    show_url(
        made,
        f"From now on this database gives 1 of {slots} ids below a limit, 1 of {slots} meteor nodes and 1 of {slots} "
        "worker numbers; who holds a number of another slot loses it.",
    )


@shards.command("add")
@click.argument("new", metavar="URL")
@click.option("--slot", type=int, required=True, help="Its slot, which nobody had before.")
@click.option("--without", type=int, multiple=True, help="A slot that is lost for good; repeatable.")
@click.option("--unused", is_flag=True, help="Nothing was ever given under the slot: you are sure.")
@fleet_options
def add_slot(new: str, slot: int, without: tuple[int, ...], unused: bool, urls: tuple[str, ...]) -> None:
    """Add the new, empty database URL to the fleet, while clients draw ids.

    Give --url once for every slot: each writes down the new one, and its ids go on. If it fails halfway, run the same
    with --unused: the slot is kept for this database.
    """
    with open_databases(urls) as members, closing(Database(replace(address_of(new), word=None), TIMEOUT)) as database:
        add(members, database, slot, without, is_unused=unused)
        added = status_of(database)
    show_url(added, "It gives ids as soon as a process has its URL. It leases no worker numbers for three minutes.")


def show_url(found: Status, about: str) -> None:
    where = f"{found.where} is slot {found.word}."
    show_for_pipe(to_row(found), found.url, f"{where} {about} Write its URL so, with its password and other arguments.")


@shards.command("list")
@fleet_options
def list_shards(urls: tuple[str, ...]) -> None:
    """Print the slot and the state of each database, and what was not given.

    The exit code is 1 if one is not used.
    """
    with open_databases(urls) as databases:
        found = [status_of(one) for one in databases]
    named = {one.word.slot for one in found if one.word}
    missing = {*unasked([one.row for one in found if one.row and one.row.fleet])} - named
    rows = [to_row(one) for one in found]
    rows += [{"slot": slot, "database": None, "state": "not given"} for slot in sorted(missing)]
    show_rows(rows, "slot database state")
    if any(one.error for one in found):
        sys.exit(REFUSED)


def to_row(one: Status) -> dict[str, object]:
    state = str(one.error) if one.error else "serving"
    slots = one.row.residue.step if one.row else None
    return {"slot": one.word.slot if one.word else None, "slots": slots, "database": one.url, "state": state}
