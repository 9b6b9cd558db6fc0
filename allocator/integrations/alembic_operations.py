"""`op.create_tag` on the migration's own connection."""

from __future__ import annotations

from shlex import quote
from typing import Any

from alembic.operations import MigrateOperation, Operations

from allocator.database.store import Database
from allocator.errors import InvalidSetting, TagExists
from allocator.fleet.tag_administration import Tags
from allocator.schemes.tag import Tag


@Operations.register_operation("create_tag")
class CreateTag(MigrateOperation):
    @classmethod
    def create_tag(
        cls,
        operations: Operations,
        tag: str,
        *,
        start_after: int = 0,
        start_after_column: str | None = None,
        **settings: Any,
    ) -> None:
        """Make a tag, with the arguments of `ids.tags.create`.

        One that exists keeps its settings, and is raised above `start_after` and the column. It has no reverse: a tag
        that is deleted and made again would repeat its ids.
        """
        given = {**settings, "start_after_column": start_after_column}
        told = {**given, "start_after": start_after or None}.items()
        words = "".join(f" --{name.replace('_', '-')} {quote(str(value))}" for name, value in told if value is not None)
        if operations.migration_context.as_sql:
            raise InvalidSetting(
                "this step looks at the database, so it cannot be printed as SQL (--sql); run instead: allocator tags "
                f"create {tag}{words}"
            )
        database = alone(operations.get_bind(), tag)
        tags = Tags(lambda: [database], Tag(tag))
        try:
            tags.create(tag, start_after=start_after or None, **given)
        except TagExists:
            if start_after_column is not None:
                start_after = max(start_after, database.read_column(start_after_column).greatest)
            if start_after > tags.get(tag).max_value:
                tags.set(tag, start_after=start_after)


def alone(connection: Any, what: str) -> Database:
    """The database of a connection. Raises `SchemaOutOfDate` without our tables, `InvalidSetting` in a fleet."""
    url = connection.engine.url
    # Nothing connects by this URL. Without the driver, since the library refuses those for asyncio.
    place = url.set(drivername=url.get_backend_name()) if connection.dialect.is_async else url
    database = Database(place, lent=connection)
    if database.read_row().fleet:
        raise InvalidSetting(
            f"{database.shown} is in a fleet, and a migration of one database cannot change {what!r} in all; "
            "use the command line with the URLs of all slots"
        )
    return database
