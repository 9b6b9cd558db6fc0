"""`allocator db upgrade|current|check|guard`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from allocator.cli.options import REFUSED, command, fleet_command, only_one, show

if TYPE_CHECKING:
    from allocator.database.store import Database

PATIENCE = 600.0
"""Seconds for an upgrade to wait for another one, and for a single statement."""
QUICK = 10.0


@click.group()
def db() -> None:
    """Create, update and check the tables."""


@contextmanager
def opened(url: str, seconds: float) -> Iterator[Database]:
    from allocator.database.store import Database

    database = Database(url, timeout=seconds)
    try:
        yield database
    finally:
        database.close()


@db.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the statements instead, for whoever may run them.")
@click.option("--since", metavar="REVISION", help="With --sql: what the tables are at, see `allocator db current`.")
@fleet_command
def upgrade(urls: tuple[str, ...], as_json: bool, as_sql: bool, since: str | None) -> None:
    """Create the tables, or bring them to the revision that this version needs.

    Safe to run again, and from several machines at once. Nothing else ever changes the tables of a server. With --url
    once for each shard, a fleet of these databases is made, which the role of an application may not do.
    """
    from allocator.database import schema
    from allocator.fleet.bootstrap import Opening

    if as_sql or since:
        tell_statements(only_one(urls), as_json, as_sql, since)
        return
    with ExitStack() as stack:
        databases = [stack.enter_context(opened(url, PATIENCE)) for url in urls]
        for database in databases:
            database.upgrade_schema()
        if len(databases) > 1:
            Opening(databases, None, None).rows()
        revision = databases[0].run(lambda connection, _: schema.current(connection))
    lines = [f"{database.address.shown} is at revision {revision}" for database in databases]
    show(as_json, {"revision": revision}, "\n".join(lines))


def tell_statements(url: str, as_json: bool, as_sql: bool, since: str | None) -> None:
    from allocator.database import schema
    from allocator.database.address import address_of
    from allocator.database.tables import REVISIONS

    if not as_sql:
        raise click.UsageError("--since says where --sql begins, and needs it")
    if since is not None and since not in REVISIONS:
        raise click.UsageError(f"--since must be one of {', '.join(REVISIONS)}, got {since}")
    found = schema.statements(address_of(url), since)
    show(as_json, {"sql": found}, found)


@db.command()
@command
def current(url: str, as_json: bool) -> None:
    """Print the revision that the tables are at."""
    from allocator.database import schema

    with opened(url, QUICK) as database:
        revision = database.run(lambda connection, _: schema.current(connection))
    newest = " (the newest)" if revision == schema.HEAD else f"; the newest is {schema.HEAD}"
    show(as_json, {"revision": revision, "newest": schema.HEAD}, f"{revision or 'none'}{newest}")


@db.command()
@command
def check(url: str, as_json: bool) -> None:
    """Say what is wrong with the tables; exit code 1 if anything is."""
    from allocator.database import schema

    with opened(url, QUICK) as database:
        found = database.run(schema.problems, database.address.shown)
        show(as_json, {"problems": found}, "\n".join(found) or f"{database.address.shown}: the tables are as needed")
    if found:
        sys.exit(REFUSED)


@db.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the statements; they are run by whoever may make triggers.")
@command
def guard(url: str, as_json: bool, as_sql: bool) -> None:
    """Print triggers that keep the rows of tags: max_value never falls, no tag is renamed or deleted.

    Give them to the database's own client. The lines that begin with DROP take the guard away.
    """
    from allocator.database.address import address_of
    from allocator.database.guard import script, statements

    if not as_sql:
        raise click.UsageError("the guard is made by hand; --sql prints the statements")
    dialect = address_of(url).dialect
    show(as_json, {"statements": statements(dialect)}, script(dialect))
