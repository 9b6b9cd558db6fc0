"""Import the counters of another id server as tags, each above every id that the server may have given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from allocator.database.store import Database
from allocator.database.verbs import foreign_tables as tables
from allocator.errors import InvalidSetting, SchemaOutOfDate, TagExists
from allocator.fleet.tag_administration import Tags, complete
from allocator.rules import leaf_tinyid as rules
from allocator.rules.leaf_tinyid import Decision, Refusal
from allocator.schemes.tag import Tag

if TYPE_CHECKING:
    from sqlalchemy import TableClause

CREATED, RAISED, AHEAD = "created", "raised", "ahead"


class Server(NamedTuple):
    """A kind of id server: its table, a row of it, and how to interpret the rows."""

    source: TableClause
    row: Callable[..., Any]
    decide: Callable[[Iterable[Any]], list[Decision]]

    @property
    def table(self) -> str:
        return self.source.name


LEAF = Server(tables.LEAF, rules.LeafRow, rules.leaf)
TINYID = Server(tables.TINYID, rules.TinyidRow, rules.tinyid)


@dataclass(frozen=True, slots=True)
class Imported:
    """A tag that continues after `tag.max_value`.

    state: "created"; or "raised", from `before`; or "ahead", where the tag was already there.
    """

    tag: Tag
    state: str
    before: int = 0


def import_all(server: Server, sources: Sequence[Database], tags: Tags, named: bool) -> Iterator[Imported | Refusal]:
    """Import the counters of the databases `sources`, one tag after the other. May be repeated.

    named: every source must have the table; otherwise at least one must.
    """
    found = server.decide(read(server, sources, named))
    if not found:
        return
    databases = tags.databases()
    if not databases:
        raise InvalidSetting("counters are imported where databases can be reached; give their URLs, not a service's")
    known = {tag.name: tag for tag in tags.list()}  # all shards must answer before one is changed
    with complete(databases):
        for decision in found:
            yield decision if isinstance(decision, Refusal) else import_one(decision, databases, known)


def read(server: Server, sources: Sequence[Database], named: bool) -> list[Any]:
    rows: list[Any] = []
    missing = []
    for database in sources:
        database.may_create = False
        found = database.run(tables.read, server.source, database.address.shown)
        if found is None:
            missing.append(database.address.shown)
        rows += [server.row(*one) for one in found or ()]
    if missing and (named or len(missing) == len(sources)):
        raise SchemaOutOfDate(
            f"there is no table {server.table} in {', '.join(missing)}; name the databases that have it with --from"
        )
    return rows


def import_one(wanted: Tag, databases: Sequence[Database], known: Mapping[str, Tag]) -> Imported | Refusal:
    """Let a tag continue after `wanted.max_value` on every shard.

    Each shard is treated alone: the claims of one tell nothing of the others, and a shard without a row would begin at
    1.
    """
    settings = replace(known.get(wanted.name, wanted), max_value=wanted.max_value)
    try:
        done = [import_on(database, settings) for database in databases]
    except InvalidSetting as error:
        return Refusal(wanted.name, f"{wanted.name}: {error}")
    state = min((state for state, _ in done), key=(RAISED, CREATED, AHEAD).index)
    return Imported(settings, state, max(before for found, before in done if found == state))


def import_on(database: Database, wanted: Tag) -> tuple[str, int]:
    """Make the tag or raise it. Returns the state, and the greatest id before."""
    tags = Tags(lambda: [database], wanted)
    try:
        tags.create(wanted.name, start_after=wanted.max_value)
    except TagExists:
        before = tags.get(wanted.name).max_value
    else:
        return CREATED, 0
    if before >= wanted.max_value:
        return AHEAD, before
    try:
        tags.set(wanted.name, start_after=wanted.max_value)
    except InvalidSetting:
        if tags.get(wanted.name).max_value < wanted.max_value:
            raise  # else a claim has passed it meanwhile
    return RAISED, before
