"""Fetch all that a process needs before its first id, by one statement: one round trip instead of ten."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Select,
    Table,
    bindparam,
    column,
    func,
    literal,
    literal_column,
    null,
    select,
    table,
)

from allocator.database.dialect import Dialect
from allocator.database.schema import inspection
from allocator.database.schema.tables import REVISIONS, VERSION_TABLE, segment, shard
from allocator.database.verbs.moves import as_move
from allocator.database.verbs.segments import as_tag
from allocator.database.verbs.shard_row import as_shard
from allocator.schemes.failover import Move
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import Shard
from allocator.schemes.tag import Tag, damaged


class Start(NamedTuple):
    """The rows at one moment.

    run: the server run, as the shard's row names it if it is the same.
    at: the clock of the server, in milliseconds since 1970.
    numbering: the server's configured auto-increment offset and step, as one of several without a cluster.
    """

    tag: Tag | None
    shard: Shard | None
    run: str
    at: int
    numbering: Residue


def fetch(connection: Connection, dialect: Dialect, where: str, name: str, with_revision: bool) -> Start:
    """`name` names a tag. Raises `SchemaOutOfDate` at another revision where it is asked for, and `SchemaDamaged`."""
    facts = tuple(dialect.facts(connection).items())
    first, *others = connection.execute(statement(facts, with_revision), {"name": name}).all()
    if others:
        raise damaged(name, f"there are {1 + len(others)} rows")
    tag, own = part(first, segment), part(first, shard)
    if with_revision and first.revision not in REVISIONS:
        raise inspection.unlike(first.revision, where)
    if first.mends:
        raise inspection.repeating(first.mends, where)
    return Start(
        as_tag(tag) if tag else None,
        as_shard(own) if own else None,
        dialect.run(connection, first, as_move(own) if own else Move()),
        int(first.at),
        dialect.server_numbering(first),
    )


@cache
def statement(facts: tuple[tuple[str, str], ...], with_revision: bool) -> Select[Any]:
    revision = select(func.max(column("version_num"))).select_from(table(VERSION_TABLE)).scalar_subquery()
    # Joined to one row that is always there: the facts of the server are wanted also from empty tables.
    one = select(literal(1).label("one")).subquery("one")
    # By its column: an engine of a migration warns of tables that no condition joins.
    rows = one.outerjoin(segment, segment.c.tag == bindparam("name")).outerjoin(shard, shard.c.id == one.c.one)
    return select(
        (revision if with_revision else null()).label("revision"),
        *(literal_column(words).label(name) for name, words in facts),
        *segment.c,
        *shard.c,
    ).select_from(rows)


def part(row: Any, of: Table) -> Any:
    """The columns of one table; None without a row."""
    found = SimpleNamespace(**{one.name: row._mapping[one] for one in of.c})
    return None if getattr(found, of.primary_key.columns[0].name) is None else found
