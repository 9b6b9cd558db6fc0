"""Check the schema and upgrade it.

Alembic upgrades tables of an older revision; only that part of this file imports it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Inspector,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
    column,
    select,
    table,
)

from allocator.database.connection import complete, inspector_of
from allocator.database.dialect import Dialect
from allocator.database.guard import strangers
from allocator.database.tables import BESIDE, FOR_IDS, REVISIONS, SERVING, VERSION_TABLE, metadata
from allocator.errors import AllocatorError, InvalidSetting, SchemaDamaged, SchemaOutOfDate
from allocator.runtime.forks import in_child

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy.engine.interfaces import ReflectedColumn

    from allocator.database.address import Address

HEAD = REVISIONS[-1]
CONNECTION = "connection"
"""The key of `Config.attributes` under which `migrations/env.py` finds the connection to use."""
ADDRESS = "address"
"""As `CONNECTION`, to print the statements without a connection."""
UPGRADE = "run: allocator db upgrade"

WHOLE = {f"table {expected.name}": expected for expected in metadata.sorted_tables}
"""What `missing_parts` says of a table that is not there."""

versions = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
"""The version table, as Alembic makes it."""

alembic_lock = threading.Lock()
"""`alembic.context` is global to the process."""


def renew_lock() -> None:
    global alembic_lock  # a fork may have happened while another thread held it
    alembic_lock = threading.Lock()


in_child(renew_lock)


def current(connection: Connection) -> str | None:
    """The revision that the database says it is at; None where this project's version table is missing or empty."""
    if not inspector_of(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))


def check(connection: Connection, where: str) -> bool:
    """Raise `SchemaOutOfDate` unless ids can be drawn from these tables; whether a revision says so."""
    found = current(connection)
    if found in SERVING:
        return True
    if found is not None:
        raise unlike(found, where)
    # Without our version table the tables may stand in the history of the host application.
    missing = missing_parts(inspector_of(connection), FOR_IDS)
    if missing == [f"table {expected.name}" for expected in FOR_IDS]:
        raise SchemaOutOfDate(f"{where} has none of the tables yet; {UPGRADE}")
    if missing:
        raise SchemaOutOfDate(f"{where} lacks {', '.join(missing)}; {UPGRADE}")
    return False


def unlike(found: str | None, where: str) -> SchemaOutOfDate:
    if found is None or found in REVISIONS:
        return SchemaOutOfDate(f"{where} is at revision {found or 'none'}, and {HEAD} is needed; {UPGRADE}")
    return newer(found, where)


def lacks_beside(connection: Connection, where: str) -> str:
    """What is missing besides the tables of ids, as a sentence; empty where nothing is."""
    missing = missing_parts(inspector_of(connection), BESIDE)
    return f"{where} lacks {', '.join(missing)}: ids are given, numbers without gaps are not; {UPGRADE}" * bool(missing)


def newer(found: str, where: str) -> SchemaOutOfDate:
    return SchemaOutOfDate(
        f"{where} is at revision {found}, which is newer than this version of allocator knows ({HEAD}); "
        "upgrade the package"
    )


def problems(connection: Connection, dialect: Dialect, where: str) -> list[str]:
    """All defects of the schema, a sentence each."""
    try:
        check(connection, where)
    except AllocatorError as error:
        return [str(error)]
    triggers = [
        f"trigger {name} on {expected.name}: a trigger can change what a claim gets; drop it"
        for expected in metadata.sorted_tables
        for name in strangers(connection, dialect, expected.name)
    ]
    return [*filter(None, [lacks_beside(connection, where)]), *all_damages(connection), *triggers]


def check_sound(connection: Connection, dialect: Dialect, where: str) -> bool:
    """Raise `SchemaOutOfDate` or `SchemaDamaged` unless ids can be claimed safely; else as `check`."""
    has_revision = check(connection, where)
    found = all_damages(connection)
    if found:
        raise SchemaDamaged(f"{where}: {found[0]}; see: allocator db check")
    return has_revision


def all_damages(connection: Connection) -> list[str]:
    inspector = inspector_of(connection)
    return [sentence for expected in looked_at(inspector) for sentence in damages(inspector, expected)]


def looked_at(inspector: Inspector) -> list[Table]:
    """The tables of ids, and of those beside them the ones that are there."""
    return [*FOR_IDS, *(expected for expected in BESIDE if inspector.has_table(expected.name))]


def missing_parts(inspector: Inspector, tables: Iterable[Table] = metadata.sorted_tables) -> list[str]:
    parts = []
    for expected in tables:
        if not inspector.has_table(expected.name):
            parts.append(f"table {expected.name}")
            continue
        present = {found["name"] for found in inspector.get_columns(expected.name)}
        parts += [f"column {expected.name}.{part.name}" for part in expected.columns if part.name not in present]
    return parts


def damages(inspector: Inspector, expected: Table) -> list[str]:
    if not inspector.has_table(expected.name):
        return [f"table {expected.name} is missing; {UPGRADE}"]
    return [
        *column_damages(inspector, expected),
        *key_damages(inspector, expected),
        *engine_damages(inspector, expected),
    ]


def column_damages(inspector: Inspector, expected: Table) -> list[str]:
    present = {part["name"]: part for part in inspector.get_columns(expected.name)}
    return [wrong for part in expected.columns if (wrong := damage(part, present.get(part.name), inspector))]


def key_damages(inspector: Inspector, expected: Table) -> list[str]:
    found = []
    key = list(inspector.get_pk_constraint(expected.name)["constrained_columns"])
    needed = [part.name for part in expected.primary_key.columns]
    if key != needed:
        found.append(f"the primary key of {expected.name} is ({', '.join(key)}), and must be ({', '.join(needed)})")
    for constraint in expected.constraints:
        if not isinstance(constraint, UniqueConstraint):
            continue
        columns = [part.name for part in constraint.columns]
        if columns not in unique_columns(inspector, expected.name):
            found.append(f"{expected.name} must have a unique key on ({', '.join(columns)}), and has none")
    return found


def engine_damages(inspector: Inspector, expected: Table) -> list[str]:
    engines = [value for name, value in table_options(inspector, expected.name).items() if name.endswith("_engine")]
    if any(engine != "InnoDB" for engine in engines):
        return [f"{expected.name} is kept by {engines[0]}, and must be by InnoDB, which has transactions"]
    return []


def unique_columns(inspector: Inspector, name: str) -> list[list[str | None]]:
    indexes = [index["column_names"] for index in inspector.get_indexes(name) if index["unique"]]
    return indexes + [list(found["column_names"]) for found in inspector.get_unique_constraints(name)]


def table_options(inspector: Inspector, name: str) -> dict[str, Any]:
    try:
        return dict(inspector.get_table_options(name))
    except NotImplementedError:  # SQLAlchemy 2.0, where a database has none
        return {}


def damage(expected: Column[Any], present: ReflectedColumn | None, inspector: Inspector) -> str:
    """The defect of a column; empty if there is none."""
    if present is None:
        return f"column {expected} is missing"
    needed = expected.type.dialect_impl(inspector.dialect)
    if isinstance(needed, BigInteger) and not isinstance(present["type"], BigInteger):
        return f"column {expected} is {present['type']}, and must be BIGINT"
    if present["nullable"] and not expected.nullable:
        return f"column {expected} must be NOT NULL"
    return ""


def upgrade(connection: Connection, dialect: Dialect, where: str, timeout: float) -> None:
    """Upgrade the schema from any older revision or from nothing. Safe to run in several processes at once."""
    with dialect.schema_change(connection, timeout):
        found = current(connection)
        if found == HEAD:
            return
        if found is not None and found not in REVISIONS:
            raise newer(found, where)
        missing = missing_parts(inspector_of(connection))
        if found is None and all(part in WHOLE for part in missing):
            create(connection, missing)
        else:
            migrate(connection)


def create(connection: Connection, missing: Sequence[str]) -> None:
    """Make the tables that are missing as they are today, and write down that they are.

    Some are there where an upgrade died. A twentieth of the time that the revisions take, one by one.
    """
    complete(connection)
    metadata.create_all(connection, [WHOLE[part] for part in missing], checkfirst=False)
    versions.create(connection, checkfirst=True)
    connection.execute(versions.insert().values(version_num=HEAD))


def migrate(connection: Connection) -> None:
    from alembic import command

    config = alembic_config()
    config.attributes[CONNECTION] = connection
    with alembic_lock:
        command.upgrade(config, "head")


def downgrade(connection: Connection, dialect: Dialect, where: str, timeout: float, revision: str | None) -> None:
    """Go back to an older revision; None takes all tables away. Raises `InvalidSetting` if ids would be forgotten."""
    from alembic import command
    from alembic.util import CommandError

    config = alembic_config()
    config.attributes[CONNECTION] = connection
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


def titles() -> dict[str, str]:
    """The revisions, oldest first, with their titles."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(alembic_config())
    return {revision: scripts.get_revision(revision).doc for revision in REVISIONS}


def statements(address: Address, since: str | None) -> str:
    """What `upgrade` would do to tables at the revision `since`, or to none, as SQL; the database is not asked."""
    from alembic import command

    output = StringIO()
    config = alembic_config(output)
    config.attributes[ADDRESS] = address
    with alembic_lock:
        command.upgrade(config, f"{since}:head" if since else "head", sql=True)
    return output.getvalue().strip()


def alembic_config(output: TextIO | None = None) -> Config:
    """output: takes the statements, instead of running them."""
    from alembic.config import Config

    config = Config(output_buffer=output)
    # A `%` in a path would be interpolated.
    config.set_main_option("script_location", str(script_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def script_folder() -> Path:
    """`migrations/`: inside the package when it came from a wheel, beside it in a checkout."""
    package = Path(__file__).parent.parent
    shipped = package / "migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"
