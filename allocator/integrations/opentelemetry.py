"""OpenTelemetry: a span and the duration of each call to the database that ids wait for.

    ids = instrument(Allocator("postgresql+psycopg://…"))

Needs only the API; the application configures an SDK. Ids from memory make no span and cost what they did.
"""

from __future__ import annotations

from functools import partial
from typing import TypeVar

try:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
except ImportError as error:
    raise ImportError(
        "allocator.integrations.opentelemetry needs OpenTelemetry, which is not installed; "
        "pip install 'segment-allocator[opentelemetry]'"
    ) from error

from allocator.aio import AsyncAllocator
from allocator.sync import Allocator
from allocator.telemetry.spans import traced

A = TypeVar("A", Allocator, AsyncAllocator)


def instrument(
    ids: A, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> A:
    """Trace the calls of an allocator to its database or service, and return the allocator.

    tracer_provider, meter_provider: instead of the global ones.

    A second call changes nothing. The ids in memory stay.
    """
    core = ids._allocator if isinstance(ids, AsyncAllocator) else ids
    core._wrap(partial(traced, tracer_provider=tracer_provider, meter_provider=meter_provider))
    return ids
