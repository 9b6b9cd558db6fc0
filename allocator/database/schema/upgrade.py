"""Upgrade the schema and go back. Only what meets tables of an older revision imports Alembic."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from sqlalchemy import Connection

from allocator.database.connection import complete
from allocator.database.dialect import Dialect
from allocator.database.schema.inspection import HEAD, WHOLE, current, missing_parts, newer, unlike, versions
from allocator.database.schema.tables import REVISIONS, metadata
from allocator.errors import InvalidSetting
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
    """Upgrade the schema from any older revision or from nothing. Safe to run in several processes at once."""
    with dialect.schema_change(connection, timeout):
        found = current(connection)
        if found == HEAD:
            return
        if found is not None and found not in REVISIONS:
            raise newer(found, where)
        missing = missing_parts(connection)
        if found is None and all(part in WHOLE for part in missing):
            create(connection, missing)
        else:
            migrate(connection)


def create(connection: Connection, missing: Sequence[str]) -> None:
    """Make missing tables in the newest revision, and write that revision into the version table.

    An upgrade that died may have made some of them. Takes a twentieth of the time of the single revisions.
    """
    complete(connection)
    metadata.create_all(connection, [WHOLE[part] for part in missing], checkfirst=False)
    versions.create(connection, checkfirst=True)
    connection.execute(versions.insert().values(version_num=HEAD))


def migrate(connection: Connection) -> None:
    from alembic import command

    config = alembic_config({CONNECTION: connection})
    with alembic_lock:
        command.upgrade(config, "head")


def downgrade(connection: Connection, dialect: Dialect, where: str, timeout: float, revision: str | None) -> None:
    """Go back to an older revision; None takes all tables away. Raises `InvalidSetting` if ids would be forgotten."""
    from alembic import command
    from alembic.util import CommandError

    config = alembic_config({CONNECTION: connection})
    with alembic_lock, dialect.schema_change(connection, timeout):
        found = current(connection)
        if found not in REVISIONS:
            raise unlike(found, where)
        if revision is not None and REVISIONS.index(revision) >= REVISIONS.index(found):
            raise InvalidSetting(f"{where} is at revision {found}, and {revision} is not older")
        try:
            command.downgrade(config, revision or "base")
        except CommandError as error:
            raise InvalidSetting(str(error)) from error


def statements(address: Address, since: str | None) -> str:
    """What `upgrade` would do to tables at the revision `since`, or to none, as SQL; the database is not asked."""
    from alembic import command

    output = StringIO()
    config = alembic_config({ADDRESS: address}, output)
    with alembic_lock:
        command.upgrade(config, f"{since}:head" if since else "head", sql=True)
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
