"""`allocator db upgrade|check|mark-restored`."""

from __future__ import annotations

import sys

import click

from allocator.cli.options import database_options, fleet_options, only_one, open_database, open_databases
from allocator.cli.output import REFUSED, CommandGroup, show
from allocator.database import schema
from allocator.database.address import address_of
from allocator.database.verbs import shard_row
from allocator.database.verbs.gapless_number_rows import fetch_counters
from allocator.schemes.ticket import CLAIM


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
    with open_databases(urls, schema.TIMEOUT, creates=True) as databases:
        for database in databases:
            database.check_slot(None if database.is_missing() else database.run(shard_row.fetch_if_made))
        for database in databases:
            database.upgrade_schema()
            if tickets:
                database.transact(shard_row.claim_tickets, database.address.shown)
        revision = databases[0].run(lambda connection, _: schema.current(connection))
    lines = [f"{database.address.shown} is at revision {revision}" for database in databases]
    show({"revision": revision}, "\n".join(lines))


@db.command("mark-restored")
@fleet_options
def mark_restored(urls: tuple[str, ...]) -> None:
    """Skip ids after you restored an older copy of the database.

    Use it after a restored snapshot, disk or older rows, which look like a restart to the allocator. Run it before any
    process draws ids. Each tag then skips its failover gap with its next claim. Safe to repeat.

    Numbers without gaps skip nothing: compare them with those that anybody has.
    """
    restored, lines = [], []
    for url in urls:
        with open_database(url) as database:
            database.mark_restored()
            restored.append(database.address.shown)
            lines.append(f"{database.address.shown}: each tag skips its failover gap with its next claim")
            if database.run(fetch_counters):
                lines.append(
                    "numbers without gaps may be given again: raise each of: allocator numbers list that is below what "
                    "anybody has, by: allocator numbers set NAME N"
                )
    show({"restored": restored}, "\n".join(lines))


@db.command()
@database_options
def check(url: str) -> None:
    """Print the revision of the tables, and problems.

    The exit code is 1 if there is a problem.
    """
    with open_database(url) as database:
        revision = database.run(lambda connection, _: schema.current(connection))
        found = database.run(schema.problems, database.address.shown)
        newest = "the newest" if revision == schema.HEAD else f"the newest is {schema.HEAD}"
        state = f"{database.address.shown} is at revision {revision or 'none'} ({newest})"
        values = {"revision": revision, "newest": schema.HEAD, "problems": found}
        show(values, "\n".join([state, *(found or ["the tables are correct"])]))
    if found:
        sys.exit(REFUSED)
