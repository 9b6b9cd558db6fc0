"""`op.create_tag`, `op.bind_tag`, `op.unbind_tag` and `op.takeover`, which act on the migration's own connection."""

from __future__ import annotations

from typing import Any

from alembic.operations import MigrateOperation, Operations

from allocator.errors import InvalidSetting
from allocator.integrations import column_steps
from allocator.integrations.column_steps import Action
from allocator.schemes.tag import FailoverGap


@Operations.register_operation("create_tag")
@Operations.register_operation("bind_tag")
@Operations.register_operation("unbind_tag")
@Operations.register_operation("takeover")
class Steps(MigrateOperation):
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
        connection = bind_of(operations, f"tags create {tag}")
        settings = {"step": step, "max_step": max_step, "limit": limit, "failover_gap": failover_gap}
        column_steps.create_tag(connection, tag, start_after, start_after_column, settings)

    @classmethod
    def bind_tag(cls, operations: Operations, tag: str, place: str) -> None:
        """Bind a tag to table.column or schema.table.column, for the doctor. `op.unbind_tag` is its reverse."""
        column_steps.bind_tag(bind_of(operations, f"tags bind {tag} {place}"), tag, place)

    @classmethod
    def unbind_tag(cls, operations: Operations, place: str) -> None:
        """End the binding of table.column or schema.table.column."""
        column_steps.unbind_tag(bind_of(operations, f"tags unbind {place}"), place)

    @classmethod
    def takeover(
        cls,
        operations: Operations,
        action: Action,
        place: str,
        *,
        tag: str = "",
        duration: str = "7d",
        idle: str = "10m",
    ) -> None:
        """Take table.column over by a tag ("start", which names the tag), "finish" it, or give it "back".

        duration: how long both ways write, or until the tag may end, as 7d, 12h, 30m or 90s; the rate is not measured.
        idle: how long the old way must not have written, for "finish".

        Raises `InvalidSetting` where the column cannot be taken over, or the old way still writes.
        """
        connection = bind_of(operations, f"takeover {action} {place}" + f" --tag {tag}" * (action == "start"))
        column_steps.takeover(connection, action, place, tag, duration, idle)


def bind_of(operations: Operations, command: str) -> Any:
    """The migration's connection. `command` of `allocator` does the same."""
    if operations.migration_context.as_sql:
        raise InvalidSetting(
            f"this step looks at the database, so it cannot be printed as SQL (--sql); run instead: allocator {command}"
        )
    return operations.get_bind()
