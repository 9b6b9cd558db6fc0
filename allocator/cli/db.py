"""`allocator db upgrade|current|check|restored|guard`."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress

import click

from allocator.cli.options import database_options, fleet_options, only_one, open_database
from allocator.cli.output import REFUSED, show

UPGRADE_TIMEOUT = 600.0
"""Seconds for an upgrade to wait for another one, and for a single statement."""


@click.group()
def db() -> None:
    """Create, update and check the tables."""


@db.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the statements instead, for whoever may run them.")
@click.option("--since", metavar="REVISION", help="With --sql: what the tables are at, see `allocator db current`.")
@fleet_options
def upgrade(urls: tuple[str, ...], as_sql: bool, since: str | None) -> None:
    """Create the tables, or bring them to the revision that this version needs.

    Safe to run again, and from several machines at once. Nothing else ever changes the tables of a server. With --url
    once for each shard, a fleet of these databases is made, which the role of an application may not do.
    """
    from allocator.database import schema
    from allocator.fleet.bootstrap import Opening

    if as_sql or since:
        print_statements(only_one(urls), as_sql, since)
        return
    with ExitStack() as stack:
        databases = [stack.enter_context(open_database(url, UPGRADE_TIMEOUT)) for url in urls]
        for database in databases:
            database.upgrade_schema()
        if len(databases) > 1:
            Opening(databases, None, None).open()
        revision = databases[0].run(lambda connection, _: schema.current(connection))
    lines = [f"{database.address.shown} is at revision {revision}" for database in databases]
    show({"revision": revision}, "\n".join(lines))


@db.command()
@fleet_options
def restored(urls: tuple[str, ...]) -> None:
    """Say that a snapshot, a disk or old rows were put back: ids that were forgotten are skipped.

    Nothing tells such a database from one that was restarted. Run this before anything draws ids again; each tag then
    skips a gap with its next claim, as after a failover. Safe to run twice.
    """
    with ExitStack() as stack:
        databases = [stack.enter_context(open_database(url)) for url in urls]
        for database in databases:
            database.forget_run()
    lines = [f"{database.address.shown}: ids are skipped when they are next drawn" for database in databases]
    show({"restored": [database.address.shown for database in databases]}, "\n".join(lines))


def print_statements(url: str, as_sql: bool, since: str | None) -> None:
    from allocator.database import schema
    from allocator.database.address import address_of
    from allocator.database.tables import REVISIONS

    if not as_sql:
        raise click.UsageError("--since says where --sql begins, and needs it")
    if since is not None and since not in REVISIONS:
        raise click.UsageError(f"--since must be one of {', '.join(REVISIONS)}, got {since}")
    found = schema.statements(address_of(url), since)
    show({"sql": found}, found)


@db.command()
@database_options
def current(url: str) -> None:
    """Print the revision that the tables are at."""
    from allocator.database import schema

    with open_database(url) as database:
        revision = database.run(lambda connection, _: schema.current(connection))
    newest = " (the newest)" if revision == schema.HEAD else f"; the newest is {schema.HEAD}"
    show({"revision": revision, "newest": schema.HEAD}, f"{revision or 'none'}{newest}")


@db.command()
@database_options
def check(url: str) -> None:
    """Say what is wrong with the tables; exit code 1 if anything is."""
    from allocator.database import schema
    from allocator.database.verbs import servers
    from allocator.errors import AllocatorError

    with open_database(url) as database:
        found, blind = database.run(schema.problems, database.address.shown), None
        with suppress(AllocatorError):  # a standby has tables, and tells no run
            blind = database.run(servers.fetch_blind)
        lines = found or [f"{database.address.shown}: the tables are as needed"]
        guard = f"{blind.found}; {blind.mend}" if blind else ""
        show({"problems": found, **({"guard": guard} if guard else {})}, "\n".join([*lines, *filter(None, [guard])]))
    if found:
        sys.exit(REFUSED)


@db.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the statements; they are run by whoever may make triggers.")
@database_options
def guard(url: str, as_sql: bool) -> None:
    """Print triggers that keep the rows of tags: max_value never falls, no tag is renamed or deleted.

    Give them to the database's own client. The lines that begin with DROP take the guard away.
    """
    from allocator.database.address import address_of
    from allocator.database.guard import script, statements

    if not as_sql:
        raise click.UsageError("the guard is made by hand; --sql prints the statements")
    dialect = address_of(url).dialect
    show({"statements": statements(dialect)}, script(dialect))
