"""The rows of `allocator_segment`: fetched, made and changed; `claims.py` claims from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal,
    literal_column,
    select,
    update,
)

from allocator.database.dialect import Dialect, run_of
from allocator.database.schema.tables import failover, segment, shard
from allocator.database.verbs import failover_row
from allocator.database.verbs.tickets import IS_CLAIMED
from allocator.rules.failover import Failover
from allocator.schemes.shared.residues import Residue
from allocator.schemes.tag import AUTO, REFUSE, FailoverGap, Tag, damaged, is_of_tickets
from allocator.schemes.ticket import CLAIM

READ = select(segment)
READ_ONE = READ.where(segment.c.tag == bindparam("name"))
READ_ALL = READ.order_by(segment.c.tag)
READ_SOME = READ_ALL.where(segment.c.tag > bindparam("after"), ~IS_CLAIMED)

GAPS: dict[int, FailoverGap] = {-2: AUTO, -1: REFUSE}
"""What the column `failover_gap` holds for them; any other number is one of ids."""
RESIDUE = (
    func.coalesce(shard.c.shard_offset, 1),
    case((shard.c.ceiling.is_not(None), 0), else_=func.coalesce(shard.c.shard_step, 1)),
)
"""The residue of a new row: all ids, a shard's residue, or none while the fleet grows."""


def fetch(connection: Connection, dialect: Dialect, name: str) -> Tag | None:
    row = connection.execute(READ_ONE, {"name": name}).first()
    return as_tag(row) if row else None


def fetch_all(connection: Connection, dialect: Dialect) -> list[Tag]:
    return [as_tag(row) for row in connection.execute(READ_ALL)]


def fetch_page(connection: Connection, dialect: Dialect, after: str, most: int) -> list[Tag]:
    """Fetch the tags after `after`, in byte order; fewer than `most` only at the end."""
    return [as_tag(row) for row in connection.execute(READ_SOME.limit(most), {"after": after})]


def create(connection: Connection, dialect: Dialect, tag: Tag, state: Failover) -> bool:
    """Make the row; False if there is one, or if the database has moved since `state`, which says where it begins."""
    row = row_of(tag)
    values = [literal(value, segment.c[name].type) for name, value in row.items()]
    rows = failover.outerjoin(shard, shard.c.id == 1)
    source = select(*values, literal_column(run_of(connection)).label("server_run"), *RESIDUE).select_from(rows)
    source = source.where(*failover_row.unmoved(connection, dialect, state))
    if is_of_tickets(tag.name):  # not where REPLACE draws them, nor from below a floor that somebody has raised
        source = source.where(shard.c.tickets == CLAIM, shard.c.floor <= tag.max_value + 1)
    if lock := dialect.shared_lock(connection):
        source = source.with_for_update(read=lock != "FOR UPDATE")
    if dialect.checks_tag_first:
        source = select(source.subquery()).where(~exists().where(segment.c.tag == tag.name))
    made = dialect.insert_missing(segment).from_select([*row, "server_run", "shard_offset", "shard_step"], source)
    return connection.execute(made.execution_options(preserve_rowcount=True)).rowcount == 1


def change(connection: Connection, dialect: Dialect, name: str, changes: Mapping[str, FailoverGap]) -> bool:
    """Write only the given columns; False if the row is missing or would not be valid.

    The statement raises `max_value` and never lowers it: a claim may have passed the value that was read.
    """
    after: dict[str, ColumnElement[Any]] = {
        part.name: literal(stored(changes[part.name])) if part.name in changes else part for part in segment.c
    }
    values = [(segment.c[part], after[part]) for part in changes if part != "max_value"]
    if "max_value" in changes:
        values += raising(dialect, stored(changes["max_value"]))
        _, after["max_value"] = values[-1]
    fits = (segment.c.tag == name, after["max_value"] <= after["id_limit"], after["step"] <= after["max_step"])
    return connection.execute(update(segment).where(*fits).ordered_values(*values)).rowcount == 1


def raising(dialect: Dialect, above: int) -> list[tuple[Column[Any], ColumnElement[Any]]]:
    """Raise a row, counting the ids that no claim gave as skipped. MySQL assigns the columns from left to right."""
    raised = dialect.greatest(segment.c.max_value, above)
    return [
        (segment.c.skipped, segment.c.skipped + raised - segment.c.max_value),
        (segment.c.max_value, raised),
    ]


def begin_run(connection: Connection, dialect: Dialect) -> None:
    """Assign rows without a server run to this one, before another run claims from them."""
    here: ColumnElement[str] = literal_column(run_of(connection))
    connection.execute(update(segment).where(segment.c.server_run == "").values(server_run=here))


def fetch_runs(connection: Connection, dialect: Dialect) -> Sequence[str]:
    """Fetch the server runs of all rows; none where there is no row."""
    return connection.scalars(select(segment.c.server_run).distinct()).all()


def repair(connection: Connection, dialect: Dialect, name: str, above: int, run: str) -> bool:
    """Raise a row and set its server run; False if it is missing or its limit is lower."""
    fits = (segment.c.tag == name, segment.c.id_limit >= above)
    values = (*raising(dialect, above), (segment.c.server_run, literal(run)))
    return connection.execute(update(segment).where(*fits).ordered_values(*values)).rowcount == 1


def remove(connection: Connection, dialect: Dialect, tag: Tag) -> bool:
    """Delete a row; False if a claim has raised it since it was read."""
    unchanged = (segment.c.tag == tag.name, segment.c.max_value == tag.max_value)
    is_gone = connection.execute(delete(segment).where(*unchanged)).rowcount == 1
    return is_gone or fetch(connection, dialect, tag.name) is None


def raise_all(connection: Connection, dialect: Dialect, tags: Sequence[Tag], residue: Residue) -> None:
    """Make missing rows, raise each to the given tag, and set the residue of all rows."""
    state = failover_row.fetch(connection, dialect)
    for tag in tags:
        if not (state and create(connection, dialect, tag, state)) and not fetch(connection, dialect, tag.name):
            raise damaged(tag.name, "no row can be made, or the database has moved to another server")
        limit = dialect.greatest(segment.c.id_limit, tag.limit)
        values = (*raising(dialect, tag.max_value), (segment.c.id_limit, limit))
        connection.execute(update(segment).where(segment.c.tag == tag.name).ordered_values(*values))
    connection.execute(update(segment).values(shard_offset=residue.offset, shard_step=residue.step))


def raise_tickets(connection: Connection, dialect: Dialect, above: int) -> None:
    """Let tickets that are claimed continue above a number."""
    connection.execute(update(segment).where(IS_CLAIMED).ordered_values(*raising(dialect, above)))


def as_tag(row: Any) -> Tag:
    residue = Residue(row.shard_offset, row.shard_step)
    settings = (row.step, row.max_step, row.id_limit, residue, GAPS.get(row.failover_gap, row.failover_gap))
    return Tag(row.tag, row.max_value, *settings, row.skipped, row.claimed_at, row.server_run)


def row_of(tag: Tag) -> dict[str, object]:
    return {
        "tag": tag.name,
        "max_value": tag.max_value,
        "step": tag.step,
        "max_step": tag.max_step,
        "id_limit": tag.limit,
        "failover_gap": stored(tag.failover_gap),
        "skipped": tag.max_value,
    }


def stored(value: FailoverGap) -> int:
    return value if isinstance(value, int) else next(code for code, gap in GAPS.items() if gap == value)
