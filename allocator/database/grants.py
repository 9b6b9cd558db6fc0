"""The minimal rights, as SQL: of the user that serves ids, of the one that makes tokens and of the one that changes the
schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, text

from allocator.database.connection import inspector_of
from allocator.database.store import Database
from allocator.database.tables import VERSION_TABLE, metadata

READ, ADD, CHANGE = "SELECT", "INSERT", "UPDATE"

SERVED: Mapping[str, tuple[str, ...]] = {
    "allocator_segment": (READ, ADD, CHANGE),
    "allocator_ticket": (READ, ADD, CHANGE),
    "allocator_ticket_counter": (READ, ADD, CHANGE),
    "allocator_shard": (READ,),
    "allocator_node": (READ, ADD),
    "allocator_worker": (READ, ADD, CHANGE),
    "allocator_failover": (READ, ADD, CHANGE),
    "allocator_token": (READ,),
    "allocator_lease": (READ, ADD, CHANGE),
}
"""The rights that serving ids needs; other tables are only read."""

TOKENS = {"allocator_token": (READ, ADD, CHANGE)}
"""The rights that `allocator tokens` needs; the other tables are only read.

The service must not have them: an intruder there could make a token for everything."""

SEQUENCE = "allocator_node_id_seq"
"""PostgreSQL's sequence of nodes. After a failover it is drawn from, to skip node numbers."""


class Rights(NamedTuple):
    """Statements for users that exist. `tokens` and `upgrade` are for another user than `service`."""

    service: list[str]
    tokens: list[str]
    upgrade: list[str]


def rights_for(database: Database, role: str) -> Rights:
    """The rights of the user `role`, as the database's statements name it."""
    if database.dialect.embedded:
        note = f"-- a file has no users: let that of the service alone write {database.address.shown} and its folder"
        return Rights([note], [], [])
    rights = RIGHTS[database.dialect.name]
    return database.run(lambda connection, _: rights(connection, role))


def served(connection: Connection) -> dict[str, tuple[str, ...]]:
    """The rights by table. Tables in the migration history of a host application have no version table of ours."""
    there = inspector_of(connection).has_table
    names = sorted(metadata.tables)
    if there(VERSION_TABLE) or not there(names[0]):
        names.append(VERSION_TABLE)
    return {name: SERVED.get(name, (READ,)) for name in names}


def tokens(connection: Connection, schema: str, to: str) -> list[str]:
    wanted = {name: ", ".join(TOKENS.get(name, (READ,))) for name in served(connection)}
    return [f"GRANT {rights} ON {schema}.{name} TO {to};" for name, rights in wanted.items()]


def postgresql(connection: Connection, role: str) -> Rights:
    question = text(
        "SELECT quote_ident(:role) AS role, quote_ident(:role || '_owner') AS owner, "
        "quote_ident(current_database()) AS database, "
        "quote_ident(coalesce((SELECT nspname FROM pg_namespace JOIN pg_class ON relnamespace = pg_namespace.oid "
        "WHERE pg_class.oid = to_regclass('allocator_segment')), current_schema())) AS schema",
    )
    words = connection.execute(question, {"role": role}).mappings().one()
    to, owner, database, schema = words["role"], words["owner"], words["database"], words["schema"]
    entry = [f"GRANT CONNECT ON DATABASE {database} TO {to};", f"GRANT USAGE ON SCHEMA {schema} TO {to};"]
    tables = [f"GRANT {', '.join(rights)} ON {schema}.{name} TO {to};" for name, rights in served(connection).items()]
    tables.append(f"GRANT USAGE ON SEQUENCE {schema}.{SEQUENCE} TO {to};")
    return Rights(
        [*entry, *tables],
        [one.replace(f" TO {to};", f" TO {owner};") for one in entry] + tokens(connection, schema, owner),
        [
            "-- it owns the tables, which it also needs to make a fleet and let it grow",
            f"GRANT CONNECT ON DATABASE {database} TO {owner};",
            f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {owner};",
        ],
    )


def mysql(connection: Connection, role: str) -> Rights:
    name = str(connection.exec_driver_sql("SELECT DATABASE()").scalar())
    schema, pattern = quoted(name), quoted(name if is_literal(connection) else escaped(name))
    to, owner = user(role), user(f"{role}_owner")
    tables = [f"GRANT {', '.join(rights)} ON {schema}.{name} TO {to};" for name, rights in served(connection).items()]
    return Rights(
        [
            *tables,
            "-- and only where tickets are drawn by the statement replace, which deletes the old row of a type",
            f"GRANT DELETE ON {schema}.allocator_ticket TO {to};",
        ],
        tokens(connection, schema, owner),
        [f"GRANT CREATE, ALTER, DROP, INDEX, SELECT, INSERT, UPDATE, DELETE ON {pattern}.* TO {owner};"],
    )


def is_literal(connection: Connection) -> bool:
    """Whether MySQL takes the database's name literally, backslashes too, as it does with partial revokes."""
    found = connection.exec_driver_sql("SHOW GLOBAL VARIABLES LIKE 'partial_revokes'").first()
    return found is not None and found[1] == "ON"


def escaped(name: str) -> str:
    """A grant on all tables of a database takes its name as a pattern, where `_` matches any character."""
    return name.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def user(name: str) -> str:
    """Quote `name` or `name@host`; without a host, any host."""
    account, _, host = name.partition("@")
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (account, host or "%"))


RIGHTS: Mapping[str, Callable[[Connection, str], Rights]] = {"postgresql": postgresql, "mysql": mysql}
