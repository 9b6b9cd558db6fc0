"""Administration of tags: create, list, get, set. Blocking; the asyncio face runs it on a thread."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from allocator.errors import InvalidSetting, SchemaOutOfDate, TagExists
from allocator.schemes.limits import MAX_ID, check_tag, check_whole
from allocator.schemes.tag import Tag, unknown

if TYPE_CHECKING:
    from allocator.database.store import Database


class Tags:
    """The tags of one database. Reached as `Allocator.tags`."""

    def __init__(self, database: Database, template: Tag) -> None:
        self._database = database
        self._template = template

    def create(
        self,
        tag: str,
        *,
        step: int | None = None,
        max_step: int | None = None,
        limit: int | None = None,
        start_after: int = 0,
        start_after_column: str | None = None,
    ) -> Tag:
        """Make a tag whose first id is greater than `start_after`, and than every value of `start_after_column`.

        The column is `table.column` or `schema.table.column` of the same database; whatever numbered that table until
        now must have stopped. What is not given is as the allocator makes tags. Raises `TagExists`.
        """
        fresh = replace(self._changed(self._template, step, max_step, limit, start_after), name=tag).checked()
        self._database.check_schema()
        if start_after_column is not None:
            highest = self._highest(start_after_column)
            fresh = replace(fresh, max_value=max(start_after, highest)).checked()
        if not self._database.run(self._database.dialect.create_segment, fresh):
            raise TagExists(f"tag {tag!r} exists already; change it with: allocator tags set {tag}")
        return fresh

    def list(self) -> list[Tag]:
        """All tags, by name."""
        self._database.check_schema()
        return self._database.run(self._database.dialect.list_segments)

    def get(self, tag: str) -> Tag:
        """One tag as the database has it. Raises `UnknownTag`."""
        name = check_tag(tag)
        self._database.check_schema()
        found = self._database.run(self._database.dialect.read_segment, name)
        if found is None:
            raise unknown(name)
        return found

    def set(
        self,
        tag: str,
        *,
        step: int | None = None,
        max_step: int | None = None,
        limit: int | None = None,
        start_after: int | None = None,
    ) -> Tag:
        """Change a tag. A value is only ever raised: `start_after` below what was claimed is refused.

        A limit holds from the next claim on; running processes learn of a step when they are started anew.
        """
        now = self.get(tag)
        if start_after is not None and check_whole("start_after", start_after, 0, MAX_ID) < now.max_value:
            raise InvalidSetting(f"start_after must be at least {now.max_value}, which is claimed, got {start_after}")
        if limit is not None and check_whole("limit", limit, 1, MAX_ID) < now.max_value:
            raise InvalidSetting(f"limit must be at least {now.max_value}, which is claimed, got {limit}")
        self._changed(now, step, max_step, limit, start_after).checked()
        given = {"step": step, "max_step": max_step, "id_limit": limit, "max_value": start_after}
        changes = {column: value for column, value in given.items() if value is not None}
        if changes and not self._database.run(self._database.dialect.set_segment, now.name, changes):
            raise InvalidSetting(
                f"tag {tag!r} was changed meanwhile, so that this does not fit any more; look and try again"
            )
        return self.get(tag)

    def _changed(
        self, tag: Tag, step: int | None, max_step: int | None, limit: int | None, start_after: int | None
    ) -> Tag:
        return replace(
            tag,
            max_value=tag.max_value if start_after is None else start_after,
            step=tag.step if step is None else step,
            max_step=tag.max_step if max_step is None else max_step,
            limit=tag.limit if limit is None else limit,
        )

    def _highest(self, name: str) -> int:
        table, _, column = name.rpartition(".") if isinstance(name, str) else ("", "", "")
        if not table or not column:
            raise InvalidSetting(f"a column is named table.column or schema.table.column, got {name!r:.80}")
        try:
            value = self._database.run(self._database.dialect.greatest_in, table, column)
        except SchemaOutOfDate as error:
            raise InvalidSetting(f"there is no column {name:.100} to start after") from error
        if value is None:
            return 0
        if type(value) is not int and not (isinstance(value, Decimal) and value == int(value)):
            raise InvalidSetting(f"the greatest value of {name} is no whole number: {value!r:.80}")
        return max(0, int(value))
