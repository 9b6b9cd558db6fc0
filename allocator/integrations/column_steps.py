"""What a migration does with tags, on its own connection: for Alembic and for Django."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from allocator.database.columns.migration_database import MigrationDatabase
from allocator.errors import InvalidSetting, TagExists
from allocator.fleet.tag_administration import Tags, whole
from allocator.schemes.shared.argument_checks import split_column
from allocator.schemes.tag import Tag

log = logging.getLogger("allocator")


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


def leave_out(step: str) -> None:
    """Log a step that 0.2 had, so that a history of migrations that names it still runs."""
    log.warning("%s does nothing any more, and is left out; see docs/upgrading.md", step)


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
