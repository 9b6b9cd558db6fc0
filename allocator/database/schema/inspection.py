"""Check the schema: its revision, and each table and column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from warnings import filterwarnings

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
    column,
    inspect,
    select,
    table,
    text,
)
from sqlalchemy import Dialect as SQLDialect
from sqlalchemy.engine.reflection import ObjectKind, ObjectScope
from sqlalchemy.exc import SAWarning

from allocator.database.dialect import Dialect
from allocator.database.schema.tables import (
    BESIDE,
    CLAIMED,
    FOR_IDS,
    REVISIONS,
    VERSION_TABLE,
    metadata,
    segment,
)
from allocator.errors import AllocatorError, DatabaseRefused, SchemaDamaged, SchemaOutOfDate

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import ReflectedColumn


# OceanBase's SHOW CREATE TABLE has options of its own in the lines of keys, which `unique_keys` reads elsewhere.
filterwarnings("ignore", "Unknown schema content", SAWarning, __name__)

HEAD = REVISIONS[-1]
UPGRADE = "run: allocator db upgrade"
RESTORE = "restore what is missing from a backup, then run: allocator db mark-restored"
"""The advice at the newest revision: an empty table in place of a lost one would let its numbers repeat."""
WHOLE = {f"table {expected.name}": expected for expected in metadata.sorted_tables}
"""Keys as `missing_parts` writes them: only tables that are missing as a whole can be created, others are migrated."""

versions = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
"""As Alembic makes it: Alembic upgrades a schema later that was created without its steps."""


def current(connection: Connection) -> str | None:
    """The revision that the database says it is at; None where this project's version table is missing or empty."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))


def check(connection: Connection, where: str) -> bool:
    """Raise `SchemaOutOfDate` unless ids can be drawn from these tables; whether a revision says so."""
    found = current(connection)
    if found in REVISIONS:
        return True
    if found is not None:
        raise unlike(found, where)
    # Without our version table the tables may stand in the history of the host application.
    missing = missing_parts(connection, FOR_IDS)
    if missing == [f"table {expected.name}" for expected in FOR_IDS]:
        if connection.dialect.default_schema_name is None:
            raise DatabaseRefused(
                f"{where}: this user may use no schema of its search_path; GRANT USAGE ON SCHEMA public TO the user, "
                "or name another one in search_path"
            )
        raise SchemaOutOfDate(f"{where} has none of the tables for ids yet; {UPGRADE}")
    if missing:
        raise SchemaOutOfDate(f"{where} lacks {', '.join(missing)}; {UPGRADE}")
    return False


def unlike(found: str | None, where: str) -> SchemaOutOfDate:
    if found is None:
        return SchemaOutOfDate(f"{where} is at revision none, and {HEAD} is needed; {UPGRADE}")
    return SchemaOutOfDate(
        f"{where} is at revision {found}, which is newer than this version of allocator knows ({HEAD}); "
        "upgrade the package"
    )


def lacks_beside(connection: Connection, where: str) -> str:
    """What is missing besides the tables of ids, as a sentence; empty where nothing is."""
    missing = missing_parts(connection, BESIDE)
    lost = "numbers without gaps and worker numbers"
    advice = RESTORE if current(connection) == HEAD else UPGRADE
    return f"{where} lacks {', '.join(missing)}: ids are given, {lost} may not be; {advice}" * bool(missing)


def problems(connection: Connection, dialect: Dialect, where: str) -> list[str]:
    """All defects of the schema, a sentence each."""
    try:
        check(connection, where)
    except AllocatorError as error:
        return [str(error)]
    names = [expected.name for expected in metadata.sorted_tables]
    lacking = filter(None, [emptied(connection), lacks_beside(connection, where)])
    return [*lacking, *all_damages(connection, dialect), *triggers(connection, dialect, names)]


def emptied(connection: Connection) -> str:
    """That the rows are gone, as a sentence; empty where they are not."""
    is_empty = current(connection) is None and inspect(connection).has_table(VERSION_TABLE)
    found = f"{VERSION_TABLE} is empty, as after TRUNCATE of all tables: ids begin again at 1; to write what is missing"
    return f"{found}, {UPGRADE}" * is_empty


def triggers(connection: Connection, dialect: Dialect, names: Iterable[str]) -> list[str]:
    return [
        f"trigger {name} on {table_name}: a trigger can change what a claim gets; drop it: {drop}"
        for table_name in names
        for name, drop in strangers(connection, dialect, table_name).items()
    ]


def check_sound(connection: Connection, dialect: Dialect, where: str) -> bool:
    """Raise `SchemaOutOfDate` or `SchemaDamaged` unless ids can be claimed safely; else as `check`."""
    has_revision = check(connection, where)
    found = [*all_damages(connection, dialect), *triggers(connection, dialect, CLAIMED)]
    if found:
        raise SchemaDamaged(f"{where}: {found[0]}; see: allocator db check")
    return has_revision


def all_damages(connection: Connection, dialect: Dialect) -> list[str]:
    seen = Reflection.of(connection, dialect)
    return [*seen.lost_tables(), *(sentence for one in seen.tables_to_check() for sentence in damages(seen, one))]


@dataclass(frozen=True, slots=True)
class Reflection:
    """The tables as the database describes them."""

    dialect: SQLDialect
    columns: dict[str, list[ReflectedColumn]]
    keys: dict[str, Any]
    unique: Collection[tuple[str, str]]
    options: dict[str, Any]

    @classmethod
    def of(cls, connection: Connection, dialect: Dialect) -> Reflection:
        inspector = inspect(connection)
        return cls(
            inspector.dialect,
            described(inspector.get_multi_columns),
            described(inspector.get_multi_pk_constraint),
            unique_keys(connection, dialect),
            described(inspector.get_multi_table_options),
        )

    def tables_to_check(self) -> list[Table]:
        """The tables that are there."""
        return [expected for expected in (*FOR_IDS, *BESIDE) if expected.name in self.columns]

    def lost_tables(self) -> list[str]:
        """The tables of ids that are not there, a sentence each."""
        return [f"table {one.name} is missing; {RESTORE}" for one in FOR_IDS if one.name not in self.columns]


def unique_keys(connection: Connection, dialect: Dialect) -> set[tuple[str, str]]:
    """The table of each unique key, and its columns."""
    if dialect.unique_query:
        return set(map(tuple, connection.execute(text(dialect.unique_query))))
    inspector = inspect(connection)
    kinds = described(inspector.get_multi_indexes), described(inspector.get_multi_unique_constraints)
    keys = [(name, key) for kind in kinds for name, found in kind.items() for key in found]
    return {(name, ",".join(map(str, key["column_names"]))) for name, key in keys if key.get("unique", True)}


def described(describe: Callable[..., Mapping[Any, Any]]) -> dict[str, Any]:
    """One kind of part of all our tables that are there. PostgreSQL answers with one statement instead of 14."""
    try:
        # In any scope, since a list of the tables would hide from MySQL's users those that they have no right to.
        found = describe(filter_names=list(metadata.tables), kind=ObjectKind.ANY, scope=ObjectScope.ANY)
    except NotImplementedError:  # SQLAlchemy 2.0, where a database has none
        return {}
    return {name: parts for (_, name), parts in found.items()}


def missing_parts(connection: Connection, tables: Iterable[Table] = metadata.sorted_tables) -> list[str]:
    parts = []
    seen = described(inspect(connection).get_multi_columns)
    for expected in tables:
        if expected.name not in seen:
            parts.append(f"table {expected.name}")
            continue
        present = {found["name"] for found in seen[expected.name]}
        parts += [f"column {expected.name}.{part.name}" for part in expected.columns if part.name not in present]
    return parts


def damages(seen: Reflection, expected: Table) -> list[str]:
    return [*column_damages(seen, expected), *key_damages(seen, expected), *engine_damages(seen, expected)]


def column_damages(seen: Reflection, expected: Table) -> list[str]:
    present = {part["name"]: part for part in seen.columns[expected.name]}
    return [wrong for part in expected.columns if (wrong := damage(part, present.get(part.name), seen.dialect))]


def key_damages(seen: Reflection, expected: Table) -> list[str]:
    found = []
    key = seen.keys[expected.name]["constrained_columns"]
    needed = [part.name for part in expected.primary_key.columns]
    if key != needed:
        found.append(f"the primary key of {expected.name} is ({', '.join(key)}), and must be ({', '.join(needed)})")
    for constraint in expected.constraints:
        if not isinstance(constraint, UniqueConstraint):
            continue
        columns = ",".join(part.name for part in constraint.columns)
        if (expected.name, columns) not in seen.unique:
            found.append(f"{expected.name} must have a unique key on ({columns}), and has none")
    return found


def engine_damages(seen: Reflection, expected: Table) -> list[str]:
    options = seen.options.get(expected.name, {})
    engines = [value for name, value in options.items() if name.endswith("_engine")]
    if any(engine != "InnoDB" for engine in engines):
        return [f"{expected.name} is kept by {engines[0]}, and must be by InnoDB, which has transactions"]
    return []


def damage(expected: Column[Any], present: ReflectedColumn | None, dialect: SQLDialect) -> str:
    """The defect of a column; empty if there is none."""
    if present is None:
        return f"column {expected} is missing"
    needed = expected.type.dialect_impl(dialect)
    if isinstance(needed, BigInteger) and not isinstance(present["type"], BigInteger):
        return f"column {expected} is {present['type']}, and must be BIGINT"
    if present["nullable"] and not expected.nullable:
        return f"column {expected} must be NOT NULL"
    return ""


def strangers(connection: Connection, dialect: Dialect, table_name: str) -> dict[str, str]:
    """Triggers and rules on a table that are not the guard's, or were changed, with the statements that drop them."""
    found = dialect.triggers(connection, table_name)
    if not found or not dialect.guard_query or table_name != segment.name:
        return found
    guard = squeezed(files(f"allocator.database.{dialect.name}").joinpath("guard.sql").read_text())
    rows = connection.execute(text(dialect.guard_query))
    ours = {name for name, *parts in rows if all(squeezed(part) in guard for part in parts)}
    return {name: drop for name, drop in found.items() if name not in ours}


def squeezed(words: str) -> str:
    """A client may have changed the white space."""
    return " ".join(words.split())
