"""What a migration does with tags and columns, on its own connection: for Alembic and for Django."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from allocator.database.columns import bindings
from allocator.database.columns.migration_database import MigrationDatabase, take_over
from allocator.errors import InvalidSetting, TagExists
from allocator.fleet.tag_administration import Tags, whole
from allocator.rules.takeover_ranges import seconds_of
from allocator.schemes.shared.argument_checks import split_column
from allocator.schemes.tag import Tag

Action = Literal["start", "finish", "back"]
ACTIONS = ("start", "finish", "back")


def create_tag(connection: Any, tag: str, start_after: int, column: str | None, settings: Mapping[str, Any]) -> None:
    database = alone(connection, tag)
    if column is not None:
        greatest, *_ = database.read_column(*split_column(column))
        start_after = max(start_after, whole(column, greatest))
    make_tag(Tags(lambda: [database], Tag(tag)), tag, start_after, {**settings, "start_after_column": column})


def make_tag(tags: Any, tag: str, start_after: int, settings: Mapping[str, Any]) -> None:
    """Make a tag. One that exists keeps its settings, and is raised where its next id would be too low."""
    try:
        tags.create(tag, start_after=start_after, **settings)
    except TagExists:
        if start_after > tags.get(tag).max_value:
            tags.set(tag, start_after=start_after)


def bind_tag(connection: Any, tag: str, place: str) -> None:
    alone(connection, tag).run(bindings.bind, place, tag)


def unbind_tag(connection: Any, place: str) -> None:
    """What is not bound stays so. A takeover is not ended by it."""
    database = alone(connection, place)
    if any(one.is_named(place) and one.takeover is None for one in database.bindings()):
        database.run(bindings.unbind, place)


def takeover(connection: Any, action: str, place: str, tag: str, duration: str, idle: str) -> None:
    if action not in ACTIONS:
        raise InvalidSetting(f"a takeover has the steps {', '.join(ACTIONS)}, got {action!a:.80}")
    if action == "start" and not tag:
        raise InvalidSetting("the start of a takeover names its tag, as in tag='order'")
    take_over(alone(connection, place), action, place, tag, seconds_of(duration), seconds_of(idle))


def alone(connection: Any, what: str) -> MigrationDatabase:
    """Raises `SchemaOutOfDate` without the allocator's tables, and `InvalidSetting` for one of several shards."""
    database = MigrationDatabase(connection)
    database.check_sound()
    if database.has_siblings():
        raise InvalidSetting(
            f"{database.address.shown} is one of several shards, and a migration of one cannot change {what!r} on all; "
            "use the command line with the URLs of all shards"
        )
    return database
