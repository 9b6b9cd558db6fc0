"""Alembic: for an application whose own migrations run on the database that holds the allocator's tables.

Choose one way for each database:

1. Separate. `allocator db upgrade` updates the allocator's tables, and autogenerate ignores them: this module is a
   plugin that Alembic loads by itself.
2. In the application's history, by autogenerate: `target_metadata = [Base.metadata, metadata]`.

A revision of the application's may call `op.create_tag`, which is there by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from allocator.database.tables import PREFIX, metadata

__all__ = ["metadata"]


def setup(plugin: Any) -> None:
    """Register the plugin. Alembic calls this on import.

    To turn it off: `autogenerate_plugins=["alembic.autogenerate.*", "~alembic.autogenerate.allocator"]`.
    """
    from alembic.util import DispatchPriority

    from allocator.integrations import alembic_operations  # noqa: F401  # registers them

    plugin.add_autogenerate_comparator(leave_ours_alone, "schema", "allocator", priority=DispatchPriority.FIRST)


def leave_ours_alone(context: Any, *_: object) -> Any:
    """Hide the allocator's tables from autogenerate, except those in the application's metadata."""
    from alembic.util import PriorityDispatchResult

    named = {table.name for table in context.sorted_tables}
    own = context.run_name_filters

    def included(name: str | None, kind: Any, parents: Any) -> bool:
        is_hidden = kind == "table" and name not in named and (name or "").startswith(PREFIX)
        return not is_hidden and own(name, kind, parents)

    context.run_name_filters = included
    return PriorityDispatchResult.CONTINUE


class Plugin(ModuleType):
    """A module that yields itself: Alembic 1.18.0 to 1.20.0 iterate over the entry point, later versions do not."""

    def __iter__(self) -> Iterator[ModuleType]:
        yield self


sys.modules[__name__].__class__ = Plugin
