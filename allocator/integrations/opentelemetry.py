"""OpenTelemetry: a span for each statement on an allocator's own connections.

    ids = instrument(Allocator("postgresql+psycopg://…"))

Needs only the API; the application configures an SDK. Ids from memory make no span and cost what they did.
"""

from __future__ import annotations

from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, ExceptionContext, event

try:
    from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider, get_tracer
except ImportError as error:
    raise ImportError(
        "allocator.integrations.opentelemetry needs OpenTelemetry, which is not installed; "
        "pip install 'segment-allocator[opentelemetry]'"
    ) from error

from allocator import __version__
from allocator.aio import AsyncAllocator
from allocator.errors import InvalidSetting
from allocator.fleet.fleet_backend import Fleet
from allocator.sync import Allocator

A = TypeVar("A", Allocator, AsyncAllocator)


class Statements:
    """Listens to engines. Exports the first word of a statement and the class of an error: no SQL, URL or message."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def listen(self, engine: Engine) -> None:
        event.listen(engine, "before_cursor_execute", self.begin)
        event.listen(engine, "after_cursor_execute", self.end)
        event.listen(engine, "handle_error", self.fail)

    def begin(self, connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
        verb = statement.split(maxsplit=1)[0]
        about = {"db.system.name": connection.dialect.name, "db.operation.name": verb}
        connection.info[self] = self._tracer.start_span(f"allocator {verb}", kind=SpanKind.CLIENT, attributes=about)

    def end(self, connection: Connection, *_: Any) -> None:
        span: Span | None = connection.info.pop(self, None)
        if span:
            span.end()

    def fail(self, context: ExceptionContext) -> None:
        span: Span | None = context.connection.info.pop(self, None) if context.connection else None
        if span:
            name = type(context.original_exception).__name__
            span.set_attribute("error.type", name)
            span.set_status(StatusCode.ERROR, name)
            span.end()


def instrument(ids: A, *, tracer_provider: TracerProvider | None = None) -> A:
    """Trace the statements of an allocator, and return the allocator. A second call changes nothing.

    tracer_provider: instead of the global one.
    """
    backend = (ids._allocator if isinstance(ids, AsyncAllocator) else ids)._backend
    if not isinstance(backend, Fleet):
        raise InvalidSetting("only an allocator with databases can be traced; for a service's client use headers=")
    statements = Statements(get_tracer("allocator", __version__, tracer_provider))
    for database in backend.databases():
        database.listen(statements.listen)
    return ids
