"""OpenTelemetry: a span for each statement, as a child of the span of the caller that waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from support.applications.faces import Awaited
from support.processes.patience import until
from support.servers.administrator import execute

from allocator import Allocator
from allocator.errors import AllocatorError, InvalidSetting
from allocator.integrations.opentelemetry import instrument
from allocator.testing import MemoryAllocator

SYSTEMS = {"postgres": "postgresql"}
"""Where the name of the conventions is not ours."""


class Telemetry:
    """An SDK that keeps what it gets."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._tracers = TracerProvider(shutdown_on_exit=False)
        self._tracers.add_span_processor(SimpleSpanProcessor(self._exporter))

    def of(self, ids):
        """The allocator of either face, instrumented."""
        target = ids.target if isinstance(ids, Awaited) else ids
        assert instrument(target, tracer_provider=self._tracers) is target
        return ids

    @contextmanager
    def caller(self) -> Iterator[int]:
        """A span of the application; its id."""
        with self._tracers.get_tracer("application").start_as_current_span("order") as span:
            yield span.get_span_context().span_id

    def spans(self) -> list[ReadableSpan]:
        """Our spans that ended, in their order."""
        return [one for one in self._exporter.get_finished_spans() if one.name != "order"]

    def parents(self) -> set[int | None]:
        return {one.parent and one.parent.span_id for one in self.spans()}


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def embedded(shared_database: Callable[[str], str]) -> str:
    """The URL of a database, where its kind makes no difference."""
    return shared_database("sqlite")


@pytest.mark.statements
def test_whatever_comes_from_the_database_is_a_child_of_the_span_that_waits(telemetry, kind, url, tag):
    with telemetry.of(Allocator(url)) as ids, telemetry.caller() as caller:
        for draw in (lambda: ids.next_id(tag), lambda: ids.ticket(tag), ids.meteor, ids.snowflake):
            before = len(telemetry.spans())
            draw()
            assert len(telemetry.spans()) > before
    found = telemetry.spans()

    assert telemetry.parents() == {caller}
    assert {one.kind for one in found} == {SpanKind.CLIENT}
    assert {one.status.status_code for one in found} == {StatusCode.UNSET}
    assert {one.attributes["db.system.name"] for one in found} == {SYSTEMS.get(kind, kind)}
    assert {one.name for one in found} >= {"allocator UPDATE", "allocator INSERT"}
    assert all(one.name == f"allocator {one.attributes['db.operation.name']}" for one in found)
    exported = "".join(one.to_json() for one in found)
    assert not [word for word in ("://", " SET ", " FROM ", "allocator_") if word in exported]


def test_ids_from_memory_make_no_span_and_a_claim_has_the_call_that_asked_for_it(telemetry, face, embedded, tag):
    ids = telemetry.of(face(embedded, step=20, max_step=20))
    with telemetry.caller() as caller:
        ids.next_id(tag)
        before = len(telemetry.spans())
        assert telemetry.parents() == {caller}
        ids.next_id(tag)
        assert len(telemetry.spans()) == before
        assert ids.next_id(tag) == 3  # the low water of twenty ids
        assert until(lambda: len(telemetry.spans()) > before)

    assert telemetry.parents() == {caller}


def test_an_error_is_named_and_its_message_is_not_exported(telemetry, fresh):
    with telemetry.of(Allocator(fresh)) as ids:
        ids.ticket("order")
        execute(fresh, "DROP TABLE allocator_ticket")
        with pytest.raises(AllocatorError):
            ids.ticket("order")
    failed = [one for one in telemetry.spans() if one.status.status_code is StatusCode.ERROR]

    assert failed
    assert all(one.status.description == one.attributes["error.type"] for one in failed)
    assert not [one for one in failed if "allocator_" in one.to_json()]


def test_an_allocator_in_use_keeps_its_ids_and_is_instrumented_once(telemetry, face, embedded, tag):
    ids = face(embedded, step=10, max_step=10)
    sequence = ids.sequence(tag)
    assert sequence.next_id() == 1
    telemetry.of(telemetry.of(ids))
    assert [sequence.next_id() for _ in range(10)] == list(range(2, 12))
    assert until(telemetry.spans)
    before = len(telemetry.spans())
    ids.ticket(tag)

    assert [one.name for one in telemetry.spans()[before:]].count("allocator REPLACE") == 1


def test_a_forked_child_is_traced_too(telemetry, embedded, tag):
    """It has an engine of its own; here without the fork."""
    with telemetry.of(Allocator(embedded)) as ids:
        for database in ids._backend.databases():
            database.abandon()
        ids.ticket(tag)

    assert telemetry.spans()


def test_what_has_no_engine_cannot_be_traced():
    for other in (Allocator("http://127.0.0.1:9"), MemoryAllocator()):
        with pytest.raises(InvalidSetting, match="use headers="), other:
            instrument(other)


def test_without_a_provider_ids_come_all_the_same(embedded, tag):
    with instrument(Allocator(embedded)) as ids:
        assert ids.next_ids(tag, 3) == [1, 2, 3]
