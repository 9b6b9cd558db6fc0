"""`op.create_tag`, `op.bind_tag`, `op.unbind_tag` and `op.takeover`, which act on the migration's own connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alembic.operations import MigrateOperation, Operations

from allocator.errors import InvalidSetting
from allocator.integrations import column_steps
from allocator.integrations.column_steps import Action
from allocator.rules.failover import FailoverGap


class Step(MigrateOperation):
    """A function of the migration's connection, and the command that does the same."""

    def __init__(self, command: str, act: Callable[[Any], None]) -> None:
        self.command, self.act = command, act


@Operations.implementation_for(Step)
def carry_out(operations: Operations, step: Step) -> None:
    if operations.migration_context.as_sql:
        raise InvalidSetting(
            f"this step looks at the database, so it cannot be printed as SQL (--sql); run instead: {step.command}"
        )
    step.act(operations.get_bind())


@Operations.register_operation("create_tag")
class CreateTag(Step):
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

        def act(connection: Any) -> None:
            column_steps.create_tag(connection, tag, start_after, start_after_column, settings)

        operations.invoke(cls(f"allocator tags create {tag}", act))


@Operations.register_operation("bind_tag")
class BindTag(Step):
    @classmethod
    def bind_tag(cls, operations: Operations, tag: str, place: str) -> None:
        """Bind a tag to table.column or schema.table.column, for the doctor. `op.unbind_tag` is its reverse."""
        operations.invoke(
            cls(
                f"allocator tags bind {tag} {place}",
                lambda connection: column_steps.bind_tag(connection, tag, place),
            )
        )


@Operations.register_operation("unbind_tag")
class UnbindTag(Step):
    @classmethod
    def unbind_tag(cls, operations: Operations, place: str) -> None:
        """End the binding of table.column or schema.table.column."""
        operations.invoke(
            cls(
                f"allocator tags unbind {place}",
                lambda connection: column_steps.unbind_tag(connection, place),
            )
        )


@Operations.register_operation("takeover")
class TakeOver(Step):
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
        named = f" --tag {tag}" * (action == "start")
        operations.invoke(
            cls(
                f"allocator takeover {action} {place}{named}",
                lambda connection: column_steps.takeover(connection, action, place, tag, duration, idle),
            )
        )
