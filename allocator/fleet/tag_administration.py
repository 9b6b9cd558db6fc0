"""Administration of tags: create, list, get, set. Blocking; the asyncio face runs it on a thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any

from allocator.errors import AllocatorError, FleetGrowing, InvalidSetting, TagExists, UnknownTag
from allocator.rules.column_limit import Column, NoColumn, max_step_for
from allocator.schemes.shared.argument_checks import MAX_ID, check_tag, check_whole, quoted, split_column
from allocator.schemes.shared.residues import Residue
from allocator.schemes.tag import FailoverGap, Tag, gap_of, unknown

if TYPE_CHECKING:
    from allocator.database.store import Database


FIELDS = {"start_after": "max_value"}
COLUMNS = {"limit": "id_limit", "start_after": "max_value"}
NEAR = 200
"""Tags that an unknown one is compared with: the first ones, and those from its first letter on."""


class Tags:
    """The tags of a database, or of all shards. Reached as `Allocator.tags`. With shards, all of them must answer."""

    def __init__(self, databases: Callable[[], Sequence[Database]], template: Tag) -> None:
        self._databases = databases
        self._template = template

    def create(
        self,
        tag: str,
        *,
        step: int | None = None,
        max_step: int | None = None,
        limit: int | None = None,
        start_after: int | None = None,
        start_after_column: str | None = None,
        failover_gap: FailoverGap | None = None,
    ) -> Tag:
        """Make a tag whose first id is greater than `start_after`, and than every value of `start_after_column`.

        Without either it begins at 1; after a failover or restore above ids that a tag of its name, with the same
        limit, may have given.
        The column is `table.column` or `schema.table.column` of the same database; its previous numbering must have
        stopped. The limit is the greatest value that the column can hold, unless a lower one is given. Other settings
        default to those of the allocator. Raises `TagExists`, and with a start `FleetGrowing` while
        shards are added.
        """
        ours = self._template
        column = Column() if start_after_column is None else self._column(start_after_column)
        limit_from = ""
        if limit is None and column.limit < ours.limit:
            limit, limit_from = column.limit, column.name
        if limit is not None and max_step is None:
            max_step = max_step_for(limit, ours.step if step is None else step, ours.max_step)
        settings: dict[str, FailoverGap | None] = {"step": step, "max_step": max_step, "limit": limit}
        if failover_gap is not None:
            settings["failover_gap"] = gap_of(failover_gap)
        fresh = changed(replace(ours, name=tag), start_after=start_after, **settings).checked()
        check_whole("limit", fresh.limit, 1, column.limit, hint=f"; {column.name} holds no greater value")
        fresh = replace(fresh, max_value=max(fresh.max_value, column.greatest), limit_from=limit_from).checked()
        return self._make(fresh, has_start=start_after is not None or start_after_column is not None)

    def _make(self, fresh: Tag, *, has_start: bool) -> Tag:
        """Overridden, as `_set` and `_column` are, where a service holds the tags."""
        databases = self.databases()
        # Where another shard has the tag, one that lacks it may have forgotten ids above this start.
        has_start = has_start and not any(database.fetch_tag(fresh.name) for database in databases)
        with complete(databases if fresh.max_value else ()):
            # A list, since `all` of a generator would stop at the first shard that has the tag.
            made = [database.create_tag(fresh, has_start=has_start) for database in databases]
        if not all(made):
            raise TagExists(f"tag {fresh.name!r} exists already; change it with: allocator tags set {fresh.name}")
        if has_start:
            return fresh
        rows = [database.fetch_tag(fresh.name) for database in databases]
        return replace(fresh, max_value=min(row.max_value for row in rows if row))

    def _page(self, after: str, most: int) -> list[Tag]:
        """The first `most` tags after this name: each shard can contribute no more."""
        rows = (database.fetch_page(after, most) for database in self.databases())
        return together(rows)[:most]

    def list(self) -> list[Tag]:
        """All tags, by name."""
        return self._page("", MAX_ID)

    def get(self, tag: str) -> Tag:
        """One tag as the database has it. Raises `UnknownTag`."""
        name = check_tag(tag)
        rows = [database.fetch_tag(name) for database in self.databases()]
        found = [row for row in rows if row is not None]
        if not found:
            raise self._unknown(name)
        return merged(found)

    def _unknown(self, name: str) -> UnknownTag:
        known: list[Tag] = []
        with suppress(AllocatorError):  # a token may have no right to list the tags
            known = self._page("", NEAR) + self._page(name[:1], NEAR)
        return unknown(name, {tag.name for tag in known})

    def databases(self) -> Sequence[Database]:
        """The databases that hold these tags; none if a service holds them."""
        return self._databases()

    def set(
        self,
        tag: str,
        *,
        step: int | None = None,
        max_step: int | None = None,
        limit: int | None = None,
        start_after: int | None = None,
        failover_gap: FailoverGap | None = None,
    ) -> Tag:
        """Change a tag. A value is only ever raised: `start_after` below what was claimed is refused.

        A limit and `start_after` apply from the next claim on: processes still give the ids in their memory. They read
        a new step when they restart.
        """
        gap = None if failover_gap is None else gap_of(failover_gap)
        given = {"step": step, "max_step": max_step, "limit": limit, "start_after": start_after, "failover_gap": gap}
        return self._set(tag, {name: value for name, value in given.items() if value is not None})

    def repair(self, tag: str, *, above: int | None = None) -> Tag:
        """Let a tag continue on the current server, above every id that the server may have forgotten.

        above: no id in use is greater. By default the tag is raised as after a failover.

        For use after a failover or restore, once no process uses the old server. A process that
        `MaxValueWentBack` stopped continues after a restart. Raises `UnknownTag` and `InvalidSetting`.
        """
        name = check_tag(tag)
        found = [(database, database.fetch_tag(name)) for database in self.databases()]
        if not any(row for _, row in found):
            raise self._unknown(name)
        for database, row in found:
            if row is not None:
                database.repair_segment(row, above)
        return self.get(tag)

    def _set(self, tag: str, given: dict[str, Any]) -> Tag:
        now = self.get(tag)
        for name, least in (("start_after", 0), ("limit", 1)):
            if name in given and check_whole(name, given[name], least, MAX_ID) < now.max_value:
                raise InvalidSetting(f"{name} must be at least {now.max_value}, which is claimed, got {given[name]}")
        fresh = changed(now, **given).checked()
        changes = {COLUMNS.get(name, name): value for name, value in given.items()}
        databases = self._databases()
        with complete(databases if given.get("start_after") else ()):
            for database in databases if changes else ():
                if not write(database, fresh, changes):
                    raise InvalidSetting(f"tag {tag!r} was changed meanwhile; look at it and try again")
        return self.get(tag)

    def _column(self, name: str) -> Column:
        table, column = split_column(name)
        found = []
        for database in self.databases():
            try:
                greatest, kind, limit = database.read_column(table, column)
            except NoColumn as error:
                missing = error
            else:
                found.append(Column(limit, f"{name} ({kind})", whole(name, greatest)))
        if not found:
            raise missing
        return min(found)._replace(greatest=max(one.greatest for one in found))


def changed(tag: Tag, **given: Any) -> Tag:
    """The tag with the given settings."""
    return replace(tag, **{FIELDS.get(name, name): value for name, value in given.items() if value is not None})


@contextmanager
def complete(databases: Iterable[Database]) -> Iterator[None]:
    """Wrap a change that must reach every shard: raises `FleetGrowing` if a shard that is being added may miss it."""
    before = generations(databases)
    yield
    if generations(databases) != before:
        raise FleetGrowing("the fleet has grown meanwhile, and its new shards may not know of this: do the same again")


def generations(databases: Iterable[Database]) -> list[int]:
    rows = [database.fetch_shard() for database in databases]
    if any(row and row.target for row in rows):
        raise FleetGrowing(
            "the fleet is growing, and a shard that is being added may miss the start of the tag: wait, or end it "
            "with: allocator shards grow"
        )
    return [row.generation if row else 1 for row in rows]


def write(database: Database, tag: Tag, changes: Mapping[str, FailoverGap]) -> bool:
    """Write changes to a shard, and first make the row if the shard has none, above ids that it may have forgotten."""
    if database.change_tag(tag.name, changes):
        return True
    database.open_segment(tag, create=True)
    return database.change_tag(tag.name, changes)


def whole(name: str, value: object) -> int:
    if value is None:
        return 0
    if type(value) is not int and not (isinstance(value, Decimal) and value.is_finite() and value == int(value)):
        raise InvalidSetting(f"the greatest value of {name} is no whole number: {quoted(value)}")
    return max(0, int(value))


def tags_of(databases: Iterable[Database], first_value: int) -> list[Tag]:
    """All tags by name, each with the greatest claim of any shard.

    One that a shard lacks may be forgotten there: it is raised to `first_value`, above which new tags begin.
    """
    rows = [database.fetch_tags() for database in databases]
    known = Counter(tag.name for tag in chain.from_iterable(rows))
    return [
        tag if known[tag.name] == len(rows) else replace(tag, max_value=max(tag.max_value, min(tag.limit, first_value)))
        for tag in together(rows)
    ]


def together(rows: Iterable[list[Tag]]) -> list[Tag]:
    """Merge the tags of equal name, sorted by name."""
    found: dict[str, list[Tag]] = {}
    for tag in chain.from_iterable(rows):
        found.setdefault(tag.name, []).append(tag)
    return [merged(found[name]) for name in sorted(found)]


def merged(rows: Sequence[Tag]) -> Tag:
    """Merge the rows of one tag on all shards."""
    highest = max(row.max_value for row in rows)
    limit = max(highest, *(row.limit for row in rows))
    claimed_at = max(row.claimed_at for row in rows)
    residue = Residue() if rows[1:] else rows[0].residue
    return replace(rows[0], max_value=highest, limit=limit, claimed_at=claimed_at, residue=residue)


def last_claimed(databases: Sequence[Database], name: str) -> int:
    """The greatest id that a tag may have given, also on a shard that forgot it; 0 if none was.

    Raises `UnknownTag`, and `ServerReplaced`.
    """
    rows = rows_of(databases, name)
    if not rows:
        raise unknown(name)
    given = [database.last_given(row) for database, row in rows]
    known = [database for database, _ in rows]
    return max(*given, *(one.current().shard.move.first_value for one in databases if one not in known), 0)


def delete(databases: Sequence[Database], name: str, last: int) -> None:
    """Delete a tag that gave no id above `last`, the result of `last_claimed`. Made again, it may repeat its ids."""
    in_use = InvalidSetting(f"tag {name!r} is in use: ids were claimed meanwhile, and it was not deleted")
    with complete(databases):
        rows = rows_of(databases, name)
        if any(row.max_value > last for _, row in rows):
            raise in_use
        with stopped(rows if rows[1:] else [], in_use):
            for database, row in rows:
                if not database.remove_tag(row):
                    raise in_use


@contextmanager
def stopped(rows: Sequence[tuple[Database, Tag]], in_use: AllocatorError) -> Iterator[None]:
    """Stop a tag on all shards before its first row goes, else that shard would begin it again while others give ids.

    After an error it continues on all, above its ids: a row that went is made again.
    """
    done: list[tuple[Database, Tag]] = []
    try:
        for database, row in rows:
            if row.limit > row.max_value:
                # Does not apply once a claim has raised the row.
                if not database.change_tag(row.name, {"id_limit": row.max_value}):
                    raise in_use
                done.append((database, row))
        yield
    except BaseException:
        for database, row in done:
            with suppress(AllocatorError):
                as_before = {"id_limit": row.limit, "max_value": row.max_value}
                if not database.change_tag(row.name, as_before):
                    database.create_tag(row, has_start=True)
        raise


def rows_of(databases: Iterable[Database], name: str) -> list[tuple[Database, Tag]]:
    found = [(database, database.fetch_tag(check_tag(name))) for database in databases]
    return [(database, row) for database, row in found if row is not None]
