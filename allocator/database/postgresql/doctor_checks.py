"""What the doctor checks on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, text

from allocator.database import checks
from allocator.database.checks import GUARD, TABLES, Check, others_may_write
from allocator.database.dialect import Dialect
from allocator.database.postgresql.identity import IS_DURABLE
from allocator.schemes.shared.findings import DANGER, OUTAGE, Finding

SEQUENCE = "allocator_node_id_seq"
OTHERS = """
SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(rolname) END AS role,
       string_agg(DISTINCT CAST(CAST(t.oid AS regclass) AS text), ', ') AS places, rolcanlogin AS is_user
FROM pg_class t CROSS JOIN LATERAL (
    SELECT grantee, privilege_type FROM aclexplode(relacl)
    UNION SELECT one.grantee, one.privilege_type FROM pg_attribute, aclexplode(attacl) AS one WHERE attrelid = t.oid
) AS granted LEFT JOIN pg_roles ON pg_roles.oid = grantee
WHERE t.oid IN (SELECT to_regclass(name) FROM unnest(CAST(:names AS text[])) AS name)
  AND privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER')
  AND grantee <> relowner AND rolname IS DISTINCT FROM current_user AND rolsuper IS NOT TRUE
  AND (pg_has_role(relowner, 'USAGE') OR NOT pg_has_role(grantee, 'USAGE'))
  AND (NOT relrowsecurity OR rolbypassrls IS TRUE OR EXISTS (
    SELECT FROM pg_policy, unnest(polroles) AS named WHERE polrelid = t.oid AND polcmd <> 'r'
    AND (grantee = 0 OR named = 0 OR pg_has_role(grantee, named, 'USAGE'))))
GROUP BY 1, 3 ORDER BY 1
"""
"""A role that is no owner may have its rights from groups that it is in; these are no others. Row level security with
no policy for a role lets it write nothing (but for TRUNCATE, which no API has)."""


def durable(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    if not connection.exec_driver_sql(f"SELECT {IS_DURABLE}").scalar():
        yield Finding(
            "not-durable",
            DANGER,
            "fsync or full_page_writes is off: a crash of the server may lose commits, and each restart skips ids",
            "ALTER SYSTEM SET fsync = on; ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()",
        )


def others(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    found = connection.execute(text(OTHERS), {"names": [*TABLES, SEQUENCE]})
    yield from others_may_write((one.role, one.places, one.is_user) for one in found)


def writes(connection: Connection, dialect: Dialect) -> list[Finding]:
    """After a failover a sequence is drawn from, to skip node numbers."""
    query = f"SELECT quote_ident(current_user), has_sequence_privilege(to_regclass('{SEQUENCE}'), 'USAGE')"
    role, may_draw = connection.exec_driver_sql(query).one()
    usage = f"GRANT USAGE ON SEQUENCE {SEQUENCE} TO {role};"
    found = list(checks.writes(connection, dialect, role, also=usage))
    if not found and may_draw is False:
        found.append(Finding("right-missing", OUTAGE, f"{role} lacks the right USAGE on {SEQUENCE}", usage))
    return found


CHECKS = (
    GUARD,
    Check("what a crash loses", durable),
    Check("whether ids can be claimed", writes, of_tables=True, fails="claims-refused"),
    Check("the rights of others", others, of_tables=True),
)
