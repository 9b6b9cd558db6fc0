"""`op.create_tag` on the migration's own connection."""

from __future__ import annotations

from shlex import quote
from typing import Any

from alembic.operations import MigrateOperation, Operations

from allocator.errors import InvalidSetting
from allocator.integrations import column_steps
from allocator.schemes.tag import FailoverGap


@Operations.register_operation("create_tag")
class CreateTag(MigrateOperation):
    @classmethod
    def create_tag(
        cls,
        operations: Operations,
        tag: str,
        *,
        step: int | None = None,
        max_step: int | None = None,
        limit: int | None = None,
        start_after: int = 0,
        start_after_column: str | None = None,
        failover_gap: FailoverGap | None = None,
    ) -> None:
        """Make a tag, with the arguments of `ids.tags.create`.

        One that exists keeps its settings, and is raised above `start_after` and the column. It has no reverse: a tag
        that is deleted and made again would repeat its ids.
        """
        settings = {"step": step, "max_step": max_step, "limit": limit, "failover_gap": failover_gap}
        given = settings | {"start_after": start_after or None, "start_after_column": start_after_column}
        named = {name.replace("_", "-"): str(value) for name, value in given.items() if value is not None}
        words = "".join(f" --{name} {quote(value)}" for name, value in named.items())
        connection = bind_of(operations, f"tags create {tag}{words}")
        column_steps.create_tag(connection, tag, start_after, start_after_column, settings)


def bind_of(operations: Operations, command: str) -> Any:
    """The migration's connection. `command` of `allocator` does the same."""
    if operations.migration_context.as_sql:
        raise InvalidSetting(
            f"this step looks at the database, so it cannot be printed as SQL (--sql); run instead: allocator {command}"
        )
    return operations.get_bind()
