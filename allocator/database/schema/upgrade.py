"""Upgrade the schema. Only what meets tables of an older revision imports Alembic."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from sqlalchemy import Connection

from allocator.database.dialect import Dialect
from allocator.database.schema.inspection import HEAD, current, differences, lacking, missing, unlike, versions
from allocator.database.schema.tables import REVISIONS, metadata
from allocator.errors import SchemaOutOfDate
from allocator.runtime.forks import in_child

if TYPE_CHECKING:
    from alembic.config import Config

    from allocator.database.address import Address

CONNECTION = "connection"
"""The key of `Config.attributes` under which `migrations/env.py` finds the connection to use."""
ADDRESS = "address"
"""As `CONNECTION`, to print the statements without a connection."""


alembic_lock = threading.Lock()
"""`alembic.context` is global to the process."""


def renew_lock() -> None:
    global alembic_lock  # a fork may have happened while another thread held it
    alembic_lock = threading.Lock()


in_child(renew_lock)


def upgrade(connection: Connection, dialect: Dialect, where: str, timeout: float) -> None:
    """Upgrade the schema from an older revision or from nothing. Safe to run in several processes at once."""
    with dialect.schema_change(connection, timeout):
        found = current(connection)
        if found == HEAD:
            if lost := lacking(connection, where):
                raise lost
        elif found in REVISIONS:
            migrate(connection)
        elif found is not None:
            raise unlike(found, where)
        else:
            create(connection, where)


def create(connection: Connection, where: str) -> None:
    """Make missing tables in the newest revision, and write that revision into the version table.

    An upgrade that died, or a host application, may have made some of them. A new database does without Alembic, whose
    import takes longer than the statements.
    """
    fresh = missing(connection)
    metadata.create_all(connection, fresh, checkfirst=False)
    unlike_ours = differences(connection) if len(fresh) < len(metadata.tables) else []
    if lost := [one for one in unlike_ours if one.startswith("add_column")]:
        raise SchemaOutOfDate(f"{where} needs {', '.join(lost)}; do that by the migrations that made the table")
    versions.create(connection, checkfirst=True)
    connection.execute(versions.insert().values(version_num=HEAD))


def migrate(connection: Connection) -> None:
    from alembic import command

    config = alembic_config({CONNECTION: connection})
    with alembic_lock:
        command.upgrade(config, "head")


def statements(address: Address) -> str:
    """What `upgrade` would do to an empty database, as SQL; the database is not asked."""
    from alembic import command

    output = StringIO()
    config = alembic_config({ADDRESS: address}, output)
    with alembic_lock:
        command.upgrade(config, "head", sql=True)
    return output.getvalue().strip()


def alembic_config(attributes: Mapping[str, object] | None = None, output: TextIO | None = None) -> Config:
    """output: takes the statements, instead of running them."""
    from alembic.config import Config

    config = Config(output_buffer=output, attributes=dict(attributes or {}))
    # A `%` in a path would be interpolated.
    config.set_main_option("script_location", str(script_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def script_folder() -> Path:
    """`migrations/`: inside the package when it came from a wheel, beside it in a checkout."""
    package = Path(__file__).parents[2]
    shipped = package / "migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"
