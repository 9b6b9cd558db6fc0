"""What an operator adds to the tables of PostgreSQL: the triggers of the guard, and the rights of users."""

from __future__ import annotations

from sqlalchemy import Connection, text

from allocator.database.postgresql.error_codes import GUARDED
from allocator.database.schema.grants import SEQUENCE, Rights, served, tokens
from allocator.database.schema.guard import DELETE, FALL, RENAME, Guard, Trigger, squeezed

PLPGSQL = f"""
BEGIN
  IF TG_OP <> 'UPDATE' THEN
    RAISE EXCEPTION '{DELETE}' USING ERRCODE = '{GUARDED}';
  END IF;
  IF NEW.max_value < OLD.max_value THEN
    RAISE EXCEPTION '{FALL}' USING ERRCODE = '{GUARDED}';
  END IF;
  IF NEW.tag <> OLD.tag THEN
    RAISE EXCEPTION '{RENAME}' USING ERRCODE = '{GUARDED}';
  END IF;
  RETURN NEW;
END
"""
FUNCTION = f"CREATE FUNCTION allocator_guard() RETURNS trigger LANGUAGE plpgsql AS $guard${PLPGSQL}$guard$"
BEFORE_ROW, BEFORE_TRUNCATE = 1 + 2 + 8 + 16, 2 + 32
"""PostgreSQL's bits in `pg_trigger.tgtype`: row 1, before 2, delete 8, update 16, truncate 32."""

TRIGGERS = (
    "SELECT tgname, prosrc, tgtype, tgenabled = 'O' AND tgqual IS NULL AND tgattr = CAST('' AS int2vector) "
    "AND lanname = 'plpgsql' AND proconfig IS NULL "
    "FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid JOIN pg_language ON pg_language.oid = prolang "
    "WHERE tgrelid = to_regclass('allocator_segment') AND NOT tgisinternal"
)
"""Also tells whether each still fires for every row and column: disabled or narrowed, it guards nothing."""


def trigger(name: str, event: str, level: str, bits: int) -> Trigger:
    made = f"CREATE TRIGGER {name} BEFORE {event} ON allocator_segment FOR EACH {level}"
    return Trigger(name, f"{made} EXECUTE FUNCTION allocator_guard()", (squeezed(PLPGSQL), bits, True))


GUARD = Guard(
    (
        trigger("allocator_guard_rows", "UPDATE OR DELETE", "ROW", BEFORE_ROW),
        trigger("allocator_guard_truncate", "TRUNCATE", "STATEMENT", BEFORE_TRUNCATE),
    ),
    TRIGGERS,
    ("DROP FUNCTION IF EXISTS allocator_guard()", FUNCTION),
    on=" ON allocator_segment",
)


def rights(connection: Connection, role: str) -> Rights:
    question = text(
        "SELECT quote_ident(:role) AS role, quote_ident(:role || '_owner') AS owner, "
        "quote_ident(current_database()) AS database, "
        "quote_ident(coalesce((SELECT nspname FROM pg_namespace JOIN pg_class ON relnamespace = pg_namespace.oid "
        "WHERE pg_class.oid = to_regclass('allocator_segment')), current_schema())) AS schema",
    )
    words = connection.execute(question, {"role": role}).mappings().one()
    to, owner, database, schema = words["role"], words["owner"], words["database"], words["schema"]
    entry = [f"GRANT CONNECT ON DATABASE {database} TO {to};", f"GRANT USAGE ON SCHEMA {schema} TO {to};"]
    tables = [f"GRANT {', '.join(granted)} ON {schema}.{name} TO {to};" for name, granted in served(connection).items()]
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
