"""Connects Alembic to the database, for `alembic` in a checkout and for `allocator db`.

The URL is `alembic -x url=…`, else ALLOCATOR_DATABASE_URL.
"""

from __future__ import annotations

import os
from contextlib import closing

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection

from allocator.database.address import address_of
from allocator.database.dialect import Dialect
from allocator.database.schema import ADDRESS, CONNECTION
from allocator.database.store import Database
from allocator.database.tables import PREFIX, VERSION_TABLE, metadata

PATIENCE = 600.0
"""Seconds that an upgrade may wait for another upgrade, and that one statement may take."""


def url() -> str:
    given = context.get_x_argument(as_dictionary=True).get("url", os.environ.get("ALLOCATOR_DATABASE_URL", ""))
    if not given.strip():
        raise CommandError("no database is named; give its URL by `alembic -x url=…` or ALLOCATOR_DATABASE_URL")
    return given


def ours(name: str | None, kind: str, parents: object) -> bool:
    return kind != "table" or (name or "").startswith(PREFIX)


def migrate(connection: Connection) -> None:
    # No transaction here: the caller holds the lock, and a transaction if the database has one for DDL.
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        include_name=ours,
        compare_type=True,
        transactional_ddl=False,
    )
    context.run_migrations()


def main() -> None:
    given = context.config.attributes.get(CONNECTION)
    if given is not None:
        migrate(given)
        return
    address = context.config.attributes.get(ADDRESS) or address_of(url())
    if context.is_offline_mode():
        context.configure(dialect_name=address.dialect.name, version_table=VERSION_TABLE, literal_binds=True)
        with context.begin_transaction():
            context.run_migrations()
        return
    with closing(Database(address, PATIENCE)) as database:
        database.run(upgrade_alone)


def upgrade_alone(connection: Connection, dialect: Dialect) -> None:
    with dialect.schema_change(connection, PATIENCE):
        migrate(connection)


main()
