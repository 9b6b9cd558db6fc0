"""`allocator db upgrade|check|mark-restored`."""

from __future__ import annotations

import sys
from contextlib import suppress

import click

from allocator.cli.options import database_options, fleet_options, only_one, open_database, open_databases
from allocator.cli.output import REFUSED, CommandGroup, show
from allocator.database import checks, schema
from allocator.database.address import address_of
from allocator.database.store import Database
from allocator.database.verbs import shard_row
from allocator.database.verbs.number_columns import Counter, fetch_counters
from allocator.errors import AllocatorError
from allocator.schemes.gapless_numbers import place
from allocator.schemes.slots import Shard
from allocator.schemes.ticket import CLAIM

SHOWN = 20
"""Newest numbers that are printed after a restore; as JSON all are."""
UPGRADE_TIMEOUT = 600.0
"""Seconds that an upgrade may wait for another upgrade, and that one statement may take."""


@click.group(cls=CommandGroup)
def db() -> None:
    """Create the tables, upgrade them, and skip ids after a restore.

    `upgrade` belongs into each deployment, before the programs start. `mark-restored` belongs after each restore of an
    older copy, before anything draws ids.
    """


@db.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL instead of running it.")
@click.option("--tickets", type=click.Choice([CLAIM]), help="Claim tickets from now on, instead of REPLACE.")
@fleet_options
def upgrade(urls: tuple[str, ...], as_sql: bool, tickets: str | None) -> None:
    """Create the tables, or bring them up to date.

    Safe to repeat, and to run on several machines at once. No other command changes the tables of a server.

    With --url once per slot, it upgrades a fleet. It joins no databases: `allocator shards add` does.

    --tickets claim is for MySQL and MariaDB where REPLACE stalls or is refused, as in a cluster that writes to several
    nodes. Use it before the first ticket, while nothing draws. It cannot be undone.
    """
    if as_sql and tickets:
        raise click.UsageError("--tickets changes no table, and --sql prints tables alone")
    if as_sql:
        found = schema.statements(address_of(only_one(urls)))
        show({"sql": found}, found)
        return
    with open_databases(urls, UPGRADE_TIMEOUT, creates=True) as databases:
        for database in databases:
            database.check_slot(row_in(database))
        for database in databases:
            database.upgrade_schema()
            if tickets:
                database.transact(shard_row.claim_tickets, database.address.shown)
        revision = databases[0].run(lambda connection, _: schema.current(connection))
    lines = [f"{database.address.shown} is at revision {revision}" for database in databases]
    show({"revision": revision}, "\n".join(lines))


def row_in(database: Database) -> Shard | None:
    """The shard's row; None for a database without tables. Makes no file."""
    return None if database.is_missing() else database.run(shard_row.fetch_if_made)


@db.command("mark-restored")
@fleet_options
def mark_restored(urls: tuple[str, ...]) -> None:
    """Skip ids after you restored an older copy of the database.

    Use it after a restored snapshot, disk or older rows, which look like a restart to the allocator. Run it before any
    process draws ids. Each tag then skips its failover gap with its next claim. Safe to repeat.

    Numbers without gaps skip nothing. It prints their newest ones, to be compared with those that anybody has.
    """
    restored: list[str] = []
    numbers: list[Counter] = []
    for url in urls:
        with open_database(url) as database:
            database.mark_restored()
            restored.append(database.address.shown)
            numbers += database.run(fetch_counters)
    lines = [f"{shown}: each tag skips its failover gap with its next claim" for shown in restored]
    lines += [f"the newest number of {place(*one[:3])} is {one.n}" for one in numbers[:SHOWN]]
    if numbers:
        lines.append("raise each that is below what anybody has: allocator numbers set NAME N (all: numbers list)")
    newest = [{"name": one.name, "scope": one.scope, "period": one.period, "newest": str(one.n)} for one in numbers]
    show({"restored": restored, "numbers": newest}, "\n".join(lines))


@db.command()
@database_options
def check(url: str) -> None:
    """Print the revision of the tables, and problems.

    The exit code is 1 if there is a problem.
    """
    with open_database(url) as database:
        revision = database.run(lambda connection, _: schema.current(connection))
        found, blind = database.run(schema.problems, database.address.shown), None
        with suppress(AllocatorError):  # the server run of a standby cannot be read
            blind = database.run(checks.fetch_blind)
        newest = "the newest" if revision == schema.HEAD else f"the newest is {schema.HEAD}"
        state = f"{database.address.shown} is at revision {revision or 'none'} ({newest})"
        lines = found or ["the tables are correct"]
        guard = f"{blind.found}; {blind.mend}" if blind else ""
        values = {"revision": revision, "newest": schema.HEAD, "problems": found}
        show(values | ({"guard": guard} if guard else {}), "\n".join([state, *lines, *filter(None, [guard])]))
    if found:
        sys.exit(REFUSED)
