"""What an operator adds to the tables of PostgreSQL: the rights of users."""

from __future__ import annotations

from sqlalchemy import Connection, text

from allocator.database.schema.grants import SEQUENCE, Rights, served, tokens


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
