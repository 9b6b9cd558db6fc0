"""Triggers that protect `allocator_segment`: `max_value` never falls, and no tag is deleted or renamed.

A user with the right to create triggers runs what `allocator db guard --sql` prints. The checks know the triggers by
name and text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection, text

from allocator.database.dialect import Dialect
from allocator.database.driver_errors import GUARDED
from allocator.database.tables import segment

FALL = "the guard keeps max_value of a tag from falling"
RENAME = "the guard keeps tags from being renamed"
DELETE = "the guard keeps tags from being deleted"
REPLACED = "the guard keeps the row of a tag from being replaced by a new one"
ERRCODE = GUARDED["postgresql"]


class Trigger(NamedTuple):
    """A trigger: the statement that creates it, and the catalog's description of the unchanged trigger."""

    name: str
    made: str
    described: tuple[object, ...]


PLPGSQL = f"""
BEGIN
  IF TG_OP <> 'UPDATE' THEN
    RAISE EXCEPTION '{DELETE}' USING ERRCODE = '{ERRCODE}';
  END IF;
  IF NEW.max_value < OLD.max_value THEN
    RAISE EXCEPTION '{FALL}' USING ERRCODE = '{ERRCODE}';
  END IF;
  IF NEW.tag <> OLD.tag THEN
    RAISE EXCEPTION '{RENAME}' USING ERRCODE = '{ERRCODE}';
  END IF;
  RETURN NEW;
END
"""
FUNCTION = f"CREATE FUNCTION allocator_guard() RETURNS trigger LANGUAGE plpgsql AS $guard${PLPGSQL}$guard$"
BEFORE_ROW, BEFORE_TRUNCATE = 1 + 2 + 8 + 16, 2 + 32
"""The bits of `pg_trigger.tgtype`."""

TRIGGERS_OF_POSTGRESQL = (
    "SELECT tgname, prosrc, tgtype, tgenabled = 'O' AND tgqual IS NULL AND tgattr = CAST('' AS int2vector) "
    "AND lanname = 'plpgsql' AND proconfig IS NULL "
    "FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid JOIN pg_language ON pg_language.oid = prolang "
    "WHERE tgrelid = to_regclass('allocator_segment') AND NOT tgisinternal"
)
"""Enabled, for every row and column, with the settings it was created with."""
TRIGGERS_OF_MYSQL = (
    "SELECT trigger_name, action_statement, action_timing, event_manipulation FROM information_schema.triggers "
    "WHERE event_object_schema = DATABASE() AND event_object_table = 'allocator_segment'"
)
TRIGGERS_OF_SQLITE = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'allocator_segment'"


def postgresql(name: str, event: str, level: str, bits: int) -> Trigger:
    made = f"CREATE TRIGGER {name} BEFORE {event} ON allocator_segment FOR EACH {level}"
    return Trigger(name, f"{made} EXECUTE FUNCTION allocator_guard()", (squeezed(PLPGSQL), bits, True))


def mysql(name: str, event: str, body: str) -> Trigger:
    made = f"CREATE TRIGGER {name} BEFORE {event} ON allocator_segment FOR EACH ROW\n{body}"
    return Trigger(name, made, (squeezed(body), "BEFORE", event))


def sqlite(name: str, event: str, condition: str, sentence: str) -> Trigger:
    made = f"CREATE TRIGGER {name} BEFORE {event} ON allocator_segment{condition}\nBEGIN"
    made = f"{made} SELECT RAISE(ABORT, '{sentence}'); END"
    return Trigger(name, made, (squeezed(made),))


def signal(sentence: str) -> str:
    return f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{sentence}'"


def squeezed(words: object) -> object:
    """A client may have changed the white space."""
    return " ".join(words.split()) if isinstance(words, str) else words


UPDATED = f"""BEGIN
  IF NEW.max_value < OLD.max_value THEN {signal(FALL)}; END IF;
  IF CAST(NEW.tag AS BINARY) <> CAST(OLD.tag AS BINARY) THEN {signal(RENAME)}; END IF;
END"""
IS_THERE = " WHEN EXISTS (SELECT 1 FROM allocator_segment WHERE tag = NEW.tag)"
"""On SQLite REPLACE deletes the row without firing the DELETE trigger, and inserts another."""


class Guard(NamedTuple):
    """The guard of one database.

    query: what the catalog says of the triggers on the table. function: the statements that create anew what the
    triggers call. on: what DROP TRIGGER needs after the name. delimiter: what the database's client needs after a
    body.
    """

    triggers: tuple[Trigger, ...]
    query: str
    function: tuple[str, ...] = ()
    on: str = ""
    delimiter: str = ""


GUARDS: Mapping[str, Guard] = {
    "postgresql": Guard(
        (
            postgresql("allocator_guard_rows", "UPDATE OR DELETE", "ROW", BEFORE_ROW),
            postgresql("allocator_guard_truncate", "TRUNCATE", "STATEMENT", BEFORE_TRUNCATE),
        ),
        TRIGGERS_OF_POSTGRESQL,
        ("DROP FUNCTION IF EXISTS allocator_guard()", FUNCTION),
        on=" ON allocator_segment",
    ),
    "mysql": Guard(
        (
            mysql("allocator_guard_update", "UPDATE", UPDATED),
            mysql("allocator_guard_delete", "DELETE", signal(DELETE)),
        ),
        TRIGGERS_OF_MYSQL,
        delimiter="//",
    ),
    "sqlite": Guard(
        (
            sqlite("allocator_guard_fall", "UPDATE", " WHEN NEW.max_value < OLD.max_value", FALL),
            sqlite("allocator_guard_rename", "UPDATE", " WHEN NEW.tag IS NOT OLD.tag", RENAME),
            sqlite("allocator_guard_delete", "DELETE", "", DELETE),
            sqlite("allocator_guard_replace", "INSERT", IS_THERE, REPLACED),
        ),
        TRIGGERS_OF_SQLITE,
    ),
}
"""By the name of the dialect."""


def statements(dialect: Dialect) -> list[str]:
    """The statements that create the guard anew; those that begin with DROP remove it."""
    guard = GUARDS[dialect.name]
    dropped = [f"DROP TRIGGER IF EXISTS {one.name}{guard.on}" for one in guard.triggers]
    return [*dropped, *guard.function, *(one.made for one in guard.triggers)]


def script(dialect: Dialect) -> str:
    """The statements for the database's own client; MySQL's needs another delimiter around a body."""
    end = GUARDS[dialect.name].delimiter
    if not end:
        return "\n".join(f"{one};" for one in statements(dialect))
    dropped = [f"{one};" for one in statements(dialect) if one.startswith("DROP")]
    made = [f"{one.made}{end}" for one in GUARDS[dialect.name].triggers]
    return "\n".join([*dropped, f"DELIMITER {end}", *made, "DELIMITER ;"])


def strangers(connection: Connection, dialect: Dialect, table_name: str) -> list[str]:
    """Triggers and rules on a table that are not the guard's, or were changed."""
    found = dialect.triggers(connection, table_name)
    if not found or table_name != segment.name:
        return found
    guard = GUARDS[dialect.name]
    ours = {one.name: one.described for one in guard.triggers}
    found_as = {row[0]: tuple(map(squeezed, row[1:])) for row in connection.execute(text(guard.query))}
    return [name for name in found if name not in ours or found_as.get(name) != ours[name]]
