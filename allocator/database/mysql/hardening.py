"""What an operator adds to the tables of MySQL and MariaDB: the rights of users."""

from __future__ import annotations

from sqlalchemy import Connection

from allocator.database.schema.grants import Rights, served, tokens


def rights(connection: Connection, role: str) -> Rights:
    name = str(connection.exec_driver_sql("SELECT DATABASE()").scalar())
    schema, pattern = quoted(name), quoted(name if is_literal(connection) else escaped(name))
    to, owner = user(role), user(f"{role}_owner")
    tables = [f"GRANT {', '.join(granted)} ON {schema}.{name} TO {to};" for name, granted in served(connection).items()]
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
