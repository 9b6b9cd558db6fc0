"""What an operator adds to the tables of MySQL and MariaDB: the triggers of the guard, and the rights of users."""

from __future__ import annotations

from sqlalchemy import Connection

from allocator.database.schema.grants import Rights, served, tokens
from allocator.database.schema.guard import DELETE, FALL, RENAME, Guard, Trigger, squeezed

TRIGGERS = (
    "SELECT trigger_name, action_statement, action_timing, event_manipulation FROM information_schema.triggers "
    "WHERE event_object_schema = DATABASE() AND event_object_table = 'allocator_segment'"
)


def trigger(name: str, event: str, body: str) -> Trigger:
    made = f"CREATE TRIGGER {name} BEFORE {event} ON allocator_segment FOR EACH ROW\n{body}"
    return Trigger(name, made, (squeezed(body), "BEFORE", event))


def signal(sentence: str) -> str:
    return f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{sentence}'"


UPDATED = f"""BEGIN
  IF NEW.max_value < OLD.max_value THEN {signal(FALL)}; END IF;
  IF CAST(NEW.tag AS BINARY) <> CAST(OLD.tag AS BINARY) THEN {signal(RENAME)}; END IF;
END"""
GUARD = Guard(
    (
        trigger("allocator_guard_update", "UPDATE", UPDATED),
        trigger("allocator_guard_delete", "DELETE", signal(DELETE)),
    ),
    TRIGGERS,
    delimiter="//",
)


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
