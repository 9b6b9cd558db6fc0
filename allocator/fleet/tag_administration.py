"""Administration of tags: create, list, get, set. Blocking; the asyncio face runs it on a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from allocator.errors import (
    AllocatorError,
    DatabaseUnavailable,
    InvalidArgument,
    InvalidSetting,
    TagExists,
    UnknownTag,
)
from allocator.schemes.shared.argument_checks import MAX_ID, check_tag, check_whole
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import Shard, check_all
from allocator.schemes.tag import FailoverGap, Tag, gap_of, unknown
from allocator.schemes.tag_column import Column, NoColumn, max_step_for

if TYPE_CHECKING:
    from allocator.database.store import Database

T = TypeVar("T")
Answers = tuple[dict["Database", T], dict["Database", AllocatorError]]

FIELDS = {"start_after": "max_value"}
COLUMNS = {"limit": "id_limit", "start_after": "max_value"}
SETTINGS = ("step", "max_step", "limit", "failover_gap")
NEAR = 200
"""Tags that an unknown one is compared with: the first ones, and those from its first letter on."""


class Tags:
    """The tags of a database, or of a fleet. Reached as `Allocator.tags`.

    Where a change must reach every slot, as a start does, one that is away refuses it, and a change that ended halfway
    may be run again. All others reach the slots that answer.
    """

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
        default to those of the allocator. Raises `TagExists`; with a start in a fleet also `ShardMisconfigured` if not
        every slot was given.
        """
        ours, has_start = self._template, start_after is not None or start_after_column is not None
        slots = self._every_slot("a tag with a start") if has_start else None
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
        return self._make(fresh, slots)

    def _make(self, fresh: Tag, slots: Mapping[Database, Shard] | None) -> Tag:
        """Overridden, as `_set` and `_column` are, where a service holds the tags.

        slots: as they were when somebody chose where the tag starts.
        """
        found, _ = self._rows(fresh.name)
        known = [row for row in found.values() if row]
        if known:
            mend = f"tags set {fresh.name}" + " --start-after N" * (len(known) < len(found))
            raise TagExists(f"tag {fresh.name!r} exists already; change it with: allocator {mend}")
        if slots is not None:
            at_each("a tag with a start", slots, lambda database, row: database.create_tag(fresh, row))
            return fresh
        made, away = ask(self.databases(), lambda database: database.create_tag(fresh))
        if not any(made.values()):
            raise TagExists(f"tag {fresh.name!r} exists already; change it with: allocator tags set {fresh.name}")
        raise_if_away(f"tag {fresh.name!r} was created", made, away)
        return self.get(fresh.name)

    def _every_slot(self, what: str) -> dict[Database, Shard]:
        """The row of every slot of the fleet, for a change that must reach them all. Raises if one was not given.

        Read before all else: what somebody says of a tag holds while no database moves.
        """
        slots = {database: database.settled_shard() for database in self.databases()}
        check_all([*slots.values()], what)
        return slots

    def _page(self, after: str, most: int) -> list[Tag]:
        """The first `most` tags after this name: each database can contribute no more."""
        found, _ = ask(self.databases(), lambda database: database.fetch_page(after, most))
        return together(found.values())[:most]

    def list(self) -> list[Tag]:
        """All tags, by name."""
        return self._page("", MAX_ID)

    def get(self, tag: str) -> Tag:
        """One tag as the database has it. Raises `UnknownTag`."""
        found, _ = self._rows(tag)
        return self._merged(tag, found.values())

    def _rows(self, tag: str) -> Answers[Tag | None]:
        name = check_tag(tag)
        return ask(self.databases(), lambda database: database.fetch_tag(name))

    def _merged(self, name: str, found: Iterable[Tag | None]) -> Tag:
        """The rows of a tag as one. Raises `UnknownTag` if no database has it."""
        if rows := [row for row in found if row]:
            return merged(rows)
        raise self._unknown(name)

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
        return self.repairing(above)(tag)

    def repairing(self, above: int | None) -> Callable[[str], Tag]:
        """`repair` for several tags: `above` holds while the databases are as they are now."""
        slots, gone = ask(self.databases(), lambda database: database.settled_shard())

        def repair(tag: str) -> Tag:
            name = check_tag(tag)
            found, away = ask(slots, lambda database: database.fetch_tag(name))
            self._merged(name, found.values())
            for database, row in found.items():
                if row is not None:
                    database.repair_segment(row, above, slots[database])
            raise_if_away(f"tag {name!r} was repaired", found, gone | away)
            return self.get(tag)

        return repair

    def _set(self, tag: str, given: dict[str, Any]) -> Tag:
        slots = self._every_slot("a start") if "start_after" in given else {}
        now = self.get(tag)
        for name, least in (("start_after", 0), ("limit", 1)):
            if name in given and check_whole(name, given[name], least, MAX_ID) < now.max_value:
                raise InvalidSetting(f"{name} must be at least {now.max_value}, which is claimed, got {given[name]}")
        fresh = changed(now, **given).checked()
        changes = {COLUMNS.get(name, name): value for name, value in given.items()}
        if "start_after" in given:
            at_each("a start", slots, lambda database, row: database.start_tag(fresh, changes, row))
        elif changes:
            found, away = ask(self.databases(), lambda database: write(database, fresh, changes))
            if not all(found.values()):
                raise InvalidSetting(f"tag {tag!r} was changed meanwhile; look at it and try again")
            raise_if_away(f"tag {tag!r} was changed", found, away)
        return self.get(tag)

    def last_claimed(self, tag: str) -> int:
        """The greatest id that a tag may have given, also in a database that forgot it; 0 if none was.

        Raises `UnknownTag`, and `ServerReplaced`.
        """
        rows = {database: database.fetch_tag(check_tag(tag)) for database in self.databases()}
        found = self._merged(tag, rows.values())
        return max(database.last_given(row or found) for database, row in rows.items())

    def delete(self, tag: str, last: int) -> None:
        """Delete a tag that gave no id above `last`, the result of `last_claimed`. Made again, it may repeat its ids.

        It is closed at every slot before its first row goes: else that slot would begin it again while others give ids.
        """
        found = self.get(tag)
        row = replace(found, max_value=min(last, found.limit))  # made where the tag is missing: it may be reopened
        for database in self.databases():
            database.remove_tag("")  # where this user may not delete, nothing is closed
        try:
            slots = self._every_slot("to delete a tag")
            at_each("to delete a tag", slots, lambda database, _: database.close_tag(row))
        except InvalidSetting:
            for database in self.databases():
                database.reopen_tag(row)
            raise InvalidSetting(f"tag {tag!r} is in use: ids were claimed meanwhile, and it was not deleted") from None
        gone = [database.remove_tag(tag) for database in self.databases()]
        if not all(gone):
            raise InvalidSetting(f"tag {tag!r} was opened again meanwhile; look at it and try again")

    def _column(self, name: str) -> Column:
        found, missing = [], NoColumn()
        for database in self.databases():
            try:
                found.append(database.read_column(name))
            except NoColumn as error:
                missing = error
        if not found:
            raise missing
        return min(found)._replace(greatest=max(one.greatest for one in found))


def ask(databases: Iterable[Database], act: Callable[[Database], T]) -> Answers[T]:
    """Ask each: the answers, and the errors of those that are away. Raises the first if none answers."""
    found: dict[Database, T] = {}
    away: dict[Database, AllocatorError] = {}
    for database in databases:
        try:
            found[database] = act(database)
        except InvalidArgument:
            raise
        except AllocatorError as error:
            away[database] = error
    if not found:
        raise next(iter(away.values()))
    return found, away


def at_each(what: str, slots: Mapping[Database, Shard], act: Callable[[Database, Shard], Shard | None]) -> None:
    """Make a change at every slot.

    act: takes the row of a slot as it was before, and returns that under which it has written; None if it was refused.
    """
    rows = [act(database, row) for database, row in slots.items()]
    if not all(rows):
        raise InvalidSetting(f"{what} was refused, since the tag was changed meanwhile; look at it and try again")
    check_all([row for row in rows if row], what)  # one that was added meanwhile may have missed it


def changed(tag: Tag, **given: Any) -> Tag:
    """The tag with the given settings."""
    return replace(tag, **{FIELDS.get(name, name): value for name, value in given.items() if value is not None})


def raise_if_away(what: str, done: Iterable[Database], away: Mapping[Database, AllocatorError]) -> None:
    """Raise where a change did not reach a slot that is away."""
    if away:
        there = ", ".join(database.shown for database in done)
        raise DatabaseUnavailable(
            f"{what} at {there}, and not at {'; '.join(map(str, away.values()))}; run it again when that answers"
        )


def write(database: Database, tag: Tag, changes: Mapping[str, FailoverGap]) -> bool:
    """Write changes to a database, and first make the tag where it is missing, above ids that it may have forgotten."""
    if database.fetch_tag(tag.name) is None:
        database.create_tag(tag)
    return database.change_tag(tag.name, changes)


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
    differs = "; ".join(
        f"{name} " + ", ".join(f"{getattr(row, name)} at slot {row.residue.offset}" for row in rows)
        for name in SETTINGS
        if len({getattr(row, name) for row in rows}) > 1
    )
    return replace(rows[0], max_value=highest, limit=limit, claimed_at=claimed_at, residue=residue, differs=differs)
