"""For an application that runs Alembic itself on the database in which the allocator's tables are.

Kept apart, brought up to date by `allocator db upgrade`: autogenerate leaves them alone. From Alembic 1.18 on this
module is the plugin that has it do so; an older one needs in `env.py`

    context.configure(..., include_name=include_name())

In the application's own history: `target_metadata = [Base.metadata, metadata]`,
or the allocator's revisions as a branch of it, out of the folder `versions()`, with `check_downgrade()` before
`context.run_migrations()`. One way alone for a database.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from allocator.database.downgrade import check_downgrade
from allocator.database.schema import script_folder
from allocator.database.tables import PREFIX, metadata

__all__ = ["check_downgrade", "include_name", "include_object", "metadata", "versions"]

NameHook = Callable[[str | None, Any, Any], bool]
ObjectHook = Callable[[Any, str | None, Any, bool, Any], bool]


def is_ours(name: str | None, kind: str) -> bool:
    """By the beginning of its name: a newer version may have made tables that this one does not know."""
    return kind == "table" and (name or "").startswith(PREFIX)


def include_name(own: NameHook | None = None) -> NameHook:
    """The hook `include_name` of `context.configure`: everything but the allocator's tables, and what `own` leaves."""

    def included(name: str | None, kind: Any, parents: Mapping[str, str | None]) -> bool:
        return not is_ours(name, kind) and (own is None or own(name, kind, parents))

    return included


def include_object(own: ObjectHook | None = None) -> ObjectHook:
    """As `include_name`, for the hook `include_object`."""

    def included(item: Any, name: str | None, kind: Any, reflected: bool, other: Any) -> bool:
        return not is_ours(name, kind) and (own is None or own(item, name, kind, reflected, other))

    return included


def setup(plugin: Any) -> None:
    """Register the plugin. Alembic calls this when it is imported.

    `autogenerate_plugins=["alembic.autogenerate.*", "~alembic.autogenerate.allocator"]` turns it off.
    """
    from alembic.util import DispatchPriority

    plugin.add_autogenerate_comparator(leave_ours_alone, "schema", "allocator", priority=DispatchPriority.FIRST)


def leave_ours_alone(context: Any, *_: object) -> Any:
    """Hide from autogenerate the allocator's tables that the application's metadata does not name."""
    from alembic.util import PriorityDispatchResult

    named = {table.name for table in context.sorted_tables}
    own = context.run_name_filters

    def included(name: str | None, kind: Any, parents: Any) -> bool:
        return (name in named or not is_ours(name, kind)) and own(name, kind, parents)

    context.run_name_filters = included
    return PriorityDispatchResult.CONTINUE


class Plugin(ModuleType):
    """Alembic 1.18.0 to 1.20.0 iterate over what the entry point names; later versions want the module itself."""

    def __iter__(self) -> Iterator[ModuleType]:
        yield self


sys.modules[__name__].__class__ = Plugin


def versions() -> str:
    """The folder of the allocator's revisions, for `version_locations`: their branch is labelled `allocator`."""
    return str(script_folder() / "versions")
