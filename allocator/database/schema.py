"""The schema: its check by revision, by what repeats ids, and by Alembic; and its upgrade.

Only the comparison, and what meets tables of an older revision, import Alembic.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from warnings import filterwarnings

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, func, inspect, select
from sqlalchemy.exc import SAWarning

from allocator.database.dialect import NOWHERE, Dialect, run_of
from allocator.database.tables import FOR_IDS, REVISIONS, VERSION_TABLE, metadata
from allocator.errors import AllocatorError, DatabaseRefused, SchemaDamaged, SchemaOutOfDate
from allocator.runtime.forks import in_child

if TYPE_CHECKING:
    from alembic.config import Config

    from allocator.database.address import Address

# OceanBase's SHOW CREATE TABLE has options of its own in the lines of keys.
filterwarnings("ignore", "Unknown schema content", SAWarning, __name__)

HEAD = REVISIONS[-1]
UPGRADE = "run: allocator db upgrade"
RESTORE = "restore what is missing from a backup, then run: allocator db mark-restored"
"""The advice at the newest revision: an empty table in place of a lost one would let its numbers repeat."""

versions = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
"""As Alembic makes it: Alembic upgrades a schema later that was created without its steps."""
CONNECTION = "connection"
"""The key of `Config.attributes` under which `migrations/env.py` finds the connection to use."""
ADDRESS = "address"
"""As `CONNECTION`, to print the statements without a connection."""
TIMEOUT = 600.0
"""Seconds that an upgrade may wait for another upgrade, and that one statement may take."""


alembic_lock = threading.Lock()
"""`alembic.context` is global to the process."""


def current(connection: Connection) -> str | None:
    """The revision that the database says it is at; None where this project's version table is missing or empty."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(func.max(versions.c.version_num))).scalar()


def check(connection: Connection, dialect: Dialect, where: str) -> None:
    """Raise `SchemaOutOfDate` unless ids can be drawn from these tables."""
    found = current(connection)
    if found in REVISIONS:
        return
    if found is not None:
        raise unlike(found, where)
    # Without our version table the tables may stand in the history of the host application.
    lost = missing(connection, FOR_IDS)
    if lost == FOR_IDS and connection.dialect.default_schema_name is None:
        raise DatabaseRefused(
            f"{where}: this user may use no schema of its search_path; GRANT USAGE ON SCHEMA public TO the user, "
            "or name another one in search_path"
        )
    if lost:
        lacks = "has none of the tables for ids yet" if lost == FOR_IDS else f"lacks {listed(lost)}"
        raise SchemaOutOfDate(f"{where} {lacks}; {UPGRADE}")


def unlike(found: str | None, where: str) -> SchemaOutOfDate:
    if found is None:
        return SchemaOutOfDate(f"{where} is at revision none, and {HEAD} is needed; {UPGRADE}")
    return SchemaOutOfDate(
        f"{where} is at revision {found}, which is newer than this version of allocator knows ({HEAD}); "
        "upgrade the package"
    )


def missing(connection: Connection, tables: Iterable[Table] = metadata.sorted_tables) -> list[Table]:
    is_there = inspect(connection).has_table
    return [one for one in tables if not is_there(one.name)]


def listed(tables: Iterable[Table]) -> str:
    return ", ".join(f"table {one.name}" for one in tables)


def check_all(connection: Connection, where: str) -> None:
    """Raise `SchemaDamaged` or `SchemaOutOfDate` if a table is missing."""
    if lost := missing(connection):
        is_newest = current(connection) == HEAD
        error = SchemaDamaged if is_newest else SchemaOutOfDate
        raise error(f"{where} lacks {listed(lost)}; {RESTORE if is_newest else UPGRADE}")


def repeating(mends: str, where: str) -> SchemaDamaged:
    return SchemaDamaged(f"{where}: a trigger, rule or engine of a table can repeat ids; undo it: {mends}")


def check_sound(connection: Connection, dialect: Dialect, where: str) -> None:
    """Raise `SchemaOutOfDate` or `SchemaDamaged` unless all tables are there, and nothing on them lets ids repeat."""
    check(connection, dialect, where)
    check_all(connection, where)
    if mends := connection.exec_driver_sql(f"SELECT {dialect.words.mends}").scalar():
        raise repeating(mends, where)


def problems(connection: Connection, dialect: Dialect, where: str) -> list[str]:
    """All defects of the schema, a sentence each."""
    try:
        check_sound(connection, dialect, where)
    except AllocatorError as error:
        return [str(error)]
    return [f"{where} is not as revision {HEAD} makes it: {one}" for one in differences(connection)]


def differences(connection: Connection) -> list[str]:
    """What Alembic would change to make the tables what the revision makes, as `add_column allocator_segment step`."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def is_ours(name: str | None, kind: str, parents: object) -> bool:
        return kind != "table" or name in metadata.tables

    context = MigrationContext.configure(connection, opts={"include_name": is_ours})
    found = compare_metadata(context, metadata)
    changes = [told(*change) for one in found for change in (one if isinstance(one, list) else [one])]
    if run_of(connection) == NOWHERE:  # the keys of OceanBase cannot be read
        return [one for one in changes if not one.startswith("add_constraint")]
    return changes


def told(kind: str, *about: Any) -> str:
    """A change as Alembic names it, without the schema and the options of a column."""
    named = (getattr(one, "name", None) or one for one in about if one is not None and not isinstance(one, dict))
    return " ".join(map(str, [kind, *named]))


def renew_lock() -> None:
    global alembic_lock  # a fork may have happened while another thread held it
    alembic_lock = threading.Lock()


in_child(renew_lock)


def upgrade(connection: Connection, dialect: Dialect, where: str, timeout: float) -> None:
    """Upgrade the schema from an older revision or from nothing. Safe to run in several processes at once."""
    with dialect.schema_change(connection, timeout):
        found = current(connection)
        if found == HEAD:
            check_all(connection, where)
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
    package = Path(__file__).parents[1]
    shipped = package / "migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"
