"""The rows of `allocator_segment`: read, claimed from, made and changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    CursorResult,
    Insert,
    Select,
    String,
    Update,
    bindparam,
    case,
    column,
    exists,
    func,
    literal,
    literal_column,
    select,
    table,
    text,
    update,
)
from sqlalchemy import Dialect as SQLDialect

from allocator.database.tables import segment, shard
from allocator.database.verbs.server_run import EpochVerbs
from allocator.rules.failover import Crossing
from allocator.schemes.residues import Lane
from allocator.schemes.tag import Tag, damaged

READ = select(segment)
READ_ONE = READ.where(segment.c.tag == bindparam("name"))
READ_ALL = READ.order_by(segment.c.tag)
READ_SOME = READ_ALL.where(segment.c.tag > bindparam("after")).limit(bindparam("most"))


def claiming(max_value: ColumnElement[int], here: str) -> Update:
    """Raise `max_value` by :span, unless that passes the limit or the row lies below what was :seen.

    A row whose lane is another one by now, since the fleet has grown, does not match either, nor one that was not
    written `here`, which is a condition in SQL.

    The guard on :seen refuses where `GREATEST(max_value, :seen)` would go on: a row that fell back makes
    another process claim again what a third one still holds, so no further id of the tag is safe.
    """
    span, seen = bindparam("span", type_=BigInteger), bindparam("seen", type_=BigInteger)
    return (
        update(segment)
        .where(
            segment.c.tag == bindparam("name"),
            segment.c.max_value <= segment.c.id_limit - span,
            segment.c.max_value >= seen,
            segment.c.shard_offset == bindparam("lane_offset", type_=BigInteger),
            segment.c.shard_step == bindparam("lane_step", type_=BigInteger),
            text(here),
        )
        .values(max_value=max_value)
    )


NUMBERS = tuple(part.name for part in segment.c if isinstance(part.type, BigInteger))
RAISED = segment.c.max_value + bindparam("span", type_=BigInteger)
CROSSING = {"epoch": bindparam("epoch", type_=String)}
WAS = "epoch = :was AND {server} = :server"
LANE = (
    func.coalesce(func.max(shard.c.shard_offset), 1),
    func.coalesce(func.max(case((shard.c.ceiling.is_not(None), 0), else_=shard.c.shard_step)), 1),
)
"""Of a new row: all ids, unless this database is a shard; none while its fleet grows."""


class SegmentVerbs(EpochVerbs):
    insert_missing: ClassVar[Insert]
    """Insert a row of `allocator_segment`, or nothing when its tag is there."""
    looks_first: ClassVar[bool] = False
    """Before a row is made: a trigger of the guard's comes before `insert_missing` sees that its tag is there."""
    locks_what_it_reads: ClassVar[bool] = False
    """A fleet that begins to grow must wait for rows made under the old numbering, by this lock or a coarser one."""

    @classmethod
    def claim(cls, here: str) -> Update:
        """The statement that claims from a row which was written `here`."""
        raise NotImplementedError

    def end_of(self, result: CursorResult[Any], name: str) -> int | None:
        """What a claim brought, None if no row matched."""
        return only_row(result.all(), name)

    def carry_out(self, connection: Connection, claim: Update, parameters: dict[str, object], name: str) -> int | None:
        """Run a claim: what it brought."""
        return self.end_of(execute(connection, claim, parameters), name)

    def claim_segment(
        self, connection: Connection, name: str, size: int, lane: Lane, seen: int, crossing: Crossing | None = None
    ) -> int | None:
        """Claim the `size` ids of a lane above what is claimed: one statement, one round trip.

        Returns the end of their window, or None where no row matched: the tag is missing, too close to its limit,
        below `seen`, of another lane, or was last written on another run of a server and there is no `crossing`.
        """
        parameters = claimed(name, size, lane, seen)
        if crossing is None:
            claim = staying(self.claim, self.is_here(connection))
        else:
            claim = crossed(self.claim, self.server_here(connection))
            parameters |= crossed_by(crossing, parameters)
        return self.carry_out(connection, claim, parameters, name)

    def read_segment(self, connection: Connection, name: str) -> Tag | None:
        rows = connection.execute(READ_ONE, {"name": name}).all()
        return as_tag(rows[0]) if rows else None

    def list_segments(self, connection: Connection) -> list[Tag]:
        return [as_tag(row) for row in connection.execute(READ_ALL)]

    def list_some_segments(self, connection: Connection, after: str, most: int) -> list[Tag]:
        """Those that follow `after` byte by byte."""
        return [as_tag(row) for row in connection.execute(READ_SOME, {"after": after, "most": most})]

    def look_at_segments(self, connection: Connection) -> list[Tag]:
        """The same, damaged or not, for whoever examines them."""
        return [as_it_is(row) for row in connection.execute(READ_ALL)]

    def count_segments(self, connection: Connection) -> int:
        return connection.scalar(select(func.count()).select_from(segment)) or 0

    def create_segment(self, connection: Connection, tag: Tag) -> bool:
        """Make the row, unless there is one already: False then."""
        row = row_of(tag)
        values = [literal(value, segment.c[name].type) for name, value in row.items()]
        source = select(*values, literal_column(self.run_here(connection)).label("epoch"), *LANE).where(shard.c.id == 1)
        if self.locks_what_it_reads:
            source = source.with_for_update(read=True)
        if self.looks_first:
            source = select(source.subquery()).where(~exists().where(segment.c.tag == tag.name))
        made = self.insert_missing.from_select([*row, "epoch", "shard_offset", "shard_step"], source)
        if connection.execute(made.execution_options(preserve_rowcount=True)).rowcount == 1:
            return True
        if self.read_segment(connection, tag.name) is None:
            raise damaged(tag.name, f"no row can be made with max_value {tag.max_value} and limit {tag.limit}")
        return False

    def set_segment(self, connection: Connection, name: str, changes: Mapping[str, int]) -> bool:
        """Write the given columns and no others, if the row then adds up; False if it would not, or is missing.

        `max_value` is raised by the statement, never written: a claim may have passed it since it was read.
        """
        after: dict[str, ColumnElement[Any]] = {
            part.name: literal(changes[part.name]) if part.name in changes else part for part in segment.c
        }
        if "max_value" in changes:
            after["max_value"] = self.greatest(segment.c.max_value, changes["max_value"])
        statement = (
            update(segment)
            .where(
                segment.c.tag == name,
                after["max_value"] <= after["id_limit"],
                after["step"] <= after["max_step"],
            )
            .values({part: after[part] for part in changes})
        )
        return connection.execute(statement).rowcount == 1

    def begin_epochs(self, connection: Connection) -> None:
        """Rows from before there were epochs are of this run, rather than of whichever claims from them first."""
        here: ColumnElement[str] = literal_column(self.run_here(connection))
        connection.execute(update(segment).where(segment.c.epoch == "").values(epoch=here))

    def repair_segment(self, connection: Connection, name: str, above: int, epoch: str) -> bool:
        """Raise a row, and write where it was written; False if it cannot be raised so far, or is missing."""
        raised = self.greatest(segment.c.max_value, above)
        fits = (segment.c.tag == name, segment.c.id_limit >= above)
        return connection.execute(update(segment).where(*fits).values(max_value=raised, epoch=epoch)).rowcount == 1

    def raise_segments(self, connection: Connection, tags: Sequence[Tag], lane: Lane) -> None:
        """Make the rows that are missing, let each go on above what is given, and all have this lane."""
        for tag in tags:
            self.create_segment(connection, tag)
            raised = {
                segment.c.max_value: self.greatest(segment.c.max_value, tag.max_value),
                segment.c.id_limit: self.greatest(segment.c.id_limit, tag.limit),
            }
            connection.execute(update(segment).where(segment.c.tag == tag.name).values(raised))
        connection.execute(update(segment).values(shard_offset=lane.offset, shard_step=lane.step))

    def greatest_in(self, connection: Connection, table_name: str, column_name: str) -> object:
        """The greatest value of a column of the host's own, None for an empty table."""
        schema, _, bare = table_name.rpartition(".")
        source = table(bare, column(column_name), schema=schema or None)
        return connection.scalar(select(func.max(source.c[column_name])))


@cache
def staying(claim: Callable[[str], Update], here: str) -> Update:
    return claim(here)


@cache
def crossed(claim: Callable[[str], Update], server: str) -> Update:
    """The claim that takes a row to another run; the statement itself looks whether that is still the one."""
    return claim(WAS.format(server=server)).values(CROSSING)


@lru_cache(64)
def words_of(statement: Update | Select[Any], dialect: SQLDialect) -> tuple[str, Sequence[str] | None]:
    """A statement as the driver takes it, and the order of its parameters where they have no names."""
    compiled = statement.compile(dialect=dialect)
    return str(compiled), compiled.positiontup if compiled.positional else None


def execute(
    connection: Connection, statement: Update | Select[Any], parameters: dict[str, object]
) -> CursorResult[Any]:
    """As `connection.execute`, whose way from a statement to its words is a sixth of what a claim costs us."""
    words, order = words_of(statement, connection.dialect)
    return connection.exec_driver_sql(words, parameters if order is None else tuple(map(parameters.get, order)))


def only_row(rows: Sequence[Any], name: str) -> int | None:
    """What a claim returned, if it is what a sound table returns."""
    if len(rows) > 1:
        raise damaged(name, f"there are {len(rows)} rows")
    value: object = rows[0][0] if rows else None
    if value is not None and not isinstance(value, int):
        raise damaged(name, f"max_value is {value!r}")
    return value


def claimed(name: str, size: int, lane: Lane, seen: int) -> dict[str, object]:
    """The parameters of a claim."""
    return {
        "name": name,
        "span": size * lane.step,
        "seen": seen,
        "lane_offset": lane.offset,
        "lane_step": lane.step,
    }


def crossed_by(crossing: Crossing, claim: Mapping[str, Any]) -> dict[str, object]:
    """What a claim that crosses says otherwise: it takes what is left out as well."""
    here, skip = crossing
    return {
        "span": claim["span"] + skip,
        "seen": max(0, claim["seen"] - skip),
        "was": here.was,
        "server": here.server,
        "epoch": here.epoch,
    }


def as_tag(row: Any) -> Tag:
    """Raises `SchemaDamaged` where a number is none, as of a column that became NUMERIC."""
    for name in NUMBERS:
        if type(value := getattr(row, name)) is not int:
            raise damaged(row.tag, f"{name} is {value!r:.80}")
    return as_it_is(row)


def as_it_is(row: Any) -> Tag:
    lane = Lane(row.shard_offset, row.shard_step)
    return Tag(row.tag, row.max_value, row.step, row.max_step, row.id_limit, lane, row.margin, row.epoch)


def row_of(tag: Tag) -> dict[str, object]:
    return {
        "tag": tag.name,
        "max_value": tag.max_value,
        "step": tag.step,
        "max_step": tag.max_step,
        "id_limit": tag.limit,
        "margin": tag.margin,
    }
