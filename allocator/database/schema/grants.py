"""The minimal rights, as SQL: of the user that serves ids, of the one that makes tokens and of the one that changes the
schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection

from allocator.database.connection import inspector_of
from allocator.database.schema.tables import VERSION_TABLE, metadata

if TYPE_CHECKING:
    from allocator.database.store import Database

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
    rights = database.dialect.tools().rights
    if rights is None:
        note = f"-- a file has no users: let that of the service alone write {database.address.shown} and its folder"
        return Rights([note], [], [])
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
