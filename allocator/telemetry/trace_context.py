"""The headers of W3C Trace Context, `traceparent` and `tracestate`, between a client and the service.

Uses OpenTelemetry where the process has imported it already; before that no span can be current.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context

Headers = Sequence[tuple[bytes, bytes]]

incoming: ContextVar[Headers] = ContextVar("incoming", default=())
"""The headers of the request that the service answers; only where OpenTelemetry is in use."""


def is_in_use() -> bool:
    """Whether the process has imported the API of OpenTelemetry."""
    return sys.modules.get("opentelemetry.trace") is not None


def outgoing() -> dict[str, str]:
    """The headers that name the current span to a service; empty without one."""
    headers: dict[str, str] = {}
    if is_in_use():
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(headers)
    return headers


def parent() -> Context | None:
    """The context for a new span: that of the client of the service, or None for the current one."""
    if not incoming.get():
        return None
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if get_current_span().get_span_context().is_valid:
        return None
    carrier = {name: values_of(name) for name in ("traceparent", "tracestate")}
    if len(carrier["traceparent"]) != 1:
        return None
    return TraceContextTextMapPropagator().extract(carrier)


def values_of(name: str) -> list[str]:
    """The values of a header of the request."""
    return [value.decode("latin-1") for key, value in incoming.get() if key == name.encode()]
