"""`allocator db upgrade|downgrade|current|history|check|restored|guard`."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress

import click

from allocator.cli.options import database_options, fleet_options, only_one, open_database, require_files
from allocator.cli.output import REFUSED, confirm, show, table, yes_option

UPGRADE_TIMEOUT = 600.0
"""Seconds for an upgrade to wait for another one, and for a single statement."""

NO_REVISION = "none"


@click.group()
def db() -> None:
    """Create, update, check and downgrade the tables."""


@db.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the statements instead, for whoever may run them.")
@click.option("--since", metavar="REVISION", help="With --sql: what the tables are at, see `allocator db current`.")
@fleet_options
def upgrade(urls: tuple[str, ...], as_sql: bool, since: str | None) -> None:
    """Create the tables, or bring them up to date.

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
@click.argument("revision")
@yes_option
@database_options
def downgrade(revision: str, sure: bool, url: str) -> None:
    """Go back to an older REVISION, or to none.

    For an older version of this package. Stop all processes first. What came after REVISION is dropped, as the tokens
    of the service; a downgrade that would forget ids in use is refused before its first step.
    """
    from allocator.database import schema
    from allocator.database.tables import REVISIONS

    if revision not in (*REVISIONS, NO_REVISION):
        raise click.UsageError(f"REVISION must be {NO_REVISION} or one of {', '.join(REVISIONS)}, got {revision}")
    require_files(url)
    with open_database(url, UPGRADE_TIMEOUT) as database:
        where = database.address.shown
        confirm(f"tables and columns of {where} that came after revision {revision} will be dropped", sure)
        target = None if revision == NO_REVISION else revision
        database.run(schema.downgrade, where, UPGRADE_TIMEOUT, target)
    show({"revision": target}, f"{where} is at revision {revision}")


@db.command()
@database_options
def history(url: str) -> None:
    """Print the revisions of the tables, newest first."""
    from allocator.database import schema

    require_files(url)
    with open_database(url) as database:
        now = database.run(lambda connection, _: schema.current(connection))
    newest_first = list(schema.titles().items())[::-1]
    found = [{"revision": name, "current": name == now, "title": title} for name, title in newest_first]
    rows = [(name, "current" if name == now else "", title) for name, title in newest_first]
    show(found, table([("revision", "", "title"), *rows]))


@db.command()
@fleet_options
def restored(urls: tuple[str, ...]) -> None:
    """Say that an older copy of the database was put back.

    A snapshot, a disk or old rows: the ids that it has forgotten are skipped.
    Nothing tells such a database from one that was restarted. Run this before anything draws ids again; each tag then
    skips a gap with its next claim, as after a failover. Safe to run twice.
    """
    require_files(*urls)
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

    require_files(url)
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

    require_files(url)
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
    """Print triggers that keep tags from being set back.

    With them max_value never falls, and no tag is renamed or deleted.
    Give them to the database's own client. The lines that begin with DROP take the guard away.
    """
    from allocator.database.address import address_of
    from allocator.database.guard import script, statements

    if not as_sql:
        raise click.UsageError("the guard is made by hand; --sql prints the statements")
    dialect = address_of(url).dialect
    show({"statements": statements(dialect)}, script(dialect))
