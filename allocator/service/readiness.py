"""Whether the service can serve ids for the next seconds, for /readyz and the metrics."""

from __future__ import annotations

from collections.abc import Iterable

from allocator.errors import DatabaseUnavailable
from allocator.service.auth import STARTING, TokenCache
from allocator.service.id_sources import TagSource

ENOUGH = 3.0
"""Seconds that the ids in memory must last for readiness without a database."""


def unready_reason(tags: Iterable[TagSource], token_cache: TokenCache) -> str | None:
    """The reason why the service cannot serve ids for the next seconds, or None.

    The reason names no tag, since /readyz needs no token. The metrics do."""
    if token_cache.failure is STARTING:
        return str(STARTING)
    sources = [source for source in tags if source.given]
    for source in sources:
        if is_failing(source) and not lasts(source):
            return f"the database does not answer, and the ids of a tag last less than {ENOUGH:g} seconds"
    if token_cache.failure is not None and (not token_cache.loaded or not any(map(lasts, sources))):
        return "the database does not answer, and no ids are in memory"
    return None


def is_failing(source: TagSource) -> bool:
    """Tell whether the last claim failed with a temporary error."""
    return isinstance(source.buffer.trouble(), DatabaseUnavailable)


def lasts(source: TagSource) -> bool:
    """Tell whether the ids in memory last long enough at the current rate."""
    return source.buffer.count() > ENOUGH * source.rate
