"""Whether the service can serve ids for the next seconds, for /readyz and the metrics."""

from __future__ import annotations

from collections.abc import Iterable

from allocator.errors import DatabaseRefused, DatabaseUnavailable, SchemaDamaged, SchemaOutOfDate, ShardMisconfigured
from allocator.service.auth import STARTING, TokenCache
from allocator.service.error_responses import detail_of
from allocator.service.id_sources import TagSource

ENOUGH = 3.0
"""Seconds that the ids in memory must last for readiness without a database."""

OUTAGES = (DatabaseRefused, DatabaseUnavailable, SchemaDamaged, SchemaOutOfDate, ShardMisconfigured)
"""Errors of the database, not of one tag."""


def unready_reason(tags: Iterable[TagSource], token_cache: TokenCache) -> str | None:
    """The reason why the service cannot serve ids for the next seconds, or None.

    The reason names no tag, since /readyz needs no token. The metrics do."""
    if token_cache.failure is STARTING:
        return str(STARTING)
    sources = [source for source in tags if source.given]
    for source in sources:
        trouble = source.buffer.trouble()
        if isinstance(trouble, OUTAGES) and not lasts(source):
            return f"the ids of a tag last less than {ENOUGH:g} seconds: {detail_of(trouble)}"
    failure = token_cache.failure
    if failure is not None and not token_cache.loaded:
        return f"the tokens cannot be read: {detail_of(failure)}"
    if failure is not None and not any(map(lasts, sources)):
        return f"no ids are in memory: {detail_of(failure)}"
    return None


def lasts(source: TagSource) -> bool:
    """Tell whether the ids in memory last long enough at the current rate."""
    return source.buffer.count() > ENOUGH * source.rate
