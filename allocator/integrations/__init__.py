"""Optional integrations with web frameworks, ORMs and pytest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from allocator.errors import TagExists

if TYPE_CHECKING:  # pytest loads this package in every run
    from allocator.schemes.tag import FailoverGap


class TagSettings(TypedDict, total=False):
    """The arguments of `ids.tags.create` that do not say where the tag begins."""

    step: int | None
    max_step: int | None
    limit: int | None
    failover_gap: FailoverGap | None


def make_tag(tags: Any, tag: str, start_after: int, settings: Mapping[str, Any]) -> None:
    """Make a tag. One that exists keeps its settings, and is raised where its next id would be too low."""
    try:
        tags.create(tag, start_after=start_after or None, **settings)
    except TagExists:
        if start_after > tags.get(tag).max_value:
            tags.set(tag, start_after=start_after)
