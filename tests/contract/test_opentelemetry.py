"""OpenTelemetry: a span for each call to the database, as a child of the span of the caller that waits for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from support.applications.faces import Awaited
from support.processes.patience import until
from support.service.served import Served

from allocator import Allocator
from allocator.doctor import examine
from allocator.errors import Exhausted, InvalidSetting, UnknownTag
from allocator.integrations.opentelemetry import instrument
from allocator.telemetry.spans import SECONDS

SYSTEMS = {"postgres": "postgresql"}
"""Where the name of the conventions is not ours."""


class Telemetry:
    """An SDK that keeps what it gets."""

    def __init__(self) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self._tracers = TracerProvider(shutdown_on_exit=False)
        self._tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def of(self, ids):
        """The allocator of either face, instrumented."""
        target = ids.target if isinstance(ids, Awaited) else ids
        assert instrument(target, tracer_provider=self._tracers, meter_provider=self._meters) is target
        return ids

    @contextmanager
    def caller(self) -> Iterator[int]:
        """A span of the application; its id."""
        with self._tracers.get_tracer("application").start_as_current_span("order") as span:
            yield span.get_span_context().span_id

    def spans(self) -> list[ReadableSpan]:
        """Our spans that ended, in their order."""
        return [one for one in self._exporter.get_finished_spans() if one.name != "order"]

    def names(self) -> list[str]:
        return [one.name for one in self.spans()]

    def parents(self) -> list[int | None]:
        return [one.parent and one.parent.span_id for one in self.spans()]

    def points(self) -> dict[str, list]:
        data = self._reader.get_metrics_data()
        metrics = [one for part in data.resource_metrics for scope in part.scope_metrics for one in scope.metrics]
        return {one.name: list(one.data.data_points) for one in metrics}


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def embedded(shared_database: Callable[[str], str]) -> str:
    """The URL of a database, where its kind makes no difference."""
    return shared_database("sqlite")


def test_a_claim_is_a_child_of_the_span_that_waits_for_it(telemetry, kind, url, tag):
    with telemetry.of(Allocator(url, step=500)) as ids, telemetry.caller() as caller:
        assert ids.next_id(tag) == 1
    opened, claimed = telemetry.spans()

    assert telemetry.names() == ["allocator.open", "allocator.claim"]
    assert telemetry.parents() == [caller, caller]
    assert {one.kind for one in (opened, claimed)} == {SpanKind.CLIENT}
    assert dict(opened.attributes) == {
        "db.system.name": SYSTEMS.get(kind, kind),
        "db.operation.name": "open_segment",
        "allocator.tag": tag,
    }
    assert dict(claimed.attributes) == {
        "db.system.name": SYSTEMS.get(kind, kind),
        "db.operation.name": "claim_segment",
        "allocator.tag": tag,
        "allocator.size": 500,
    }
    assert claimed.status.status_code is StatusCode.UNSET
    exported = opened.to_json() + claimed.to_json()
    assert not [word for word in ("://", "UPDATE", "INSERT", "SELECT", "allocator_segment") if word in exported]


def test_ids_from_memory_make_no_span(telemetry, face, embedded, tag):
    ids = telemetry.of(face(embedded))
    ids.next_id(tag)
    assert len(telemetry.spans()) == 2
    assert ids.next_ids(tag, 50) == list(range(2, 52))
    assert len(telemetry.spans()) == 2


def test_a_claim_in_advance_is_a_root(telemetry, face, embedded, tag):
    ids = telemetry.of(face(embedded, step=10, max_step=10))
    with telemetry.caller() as caller:
        ids.next_id(tag)
        assert telemetry.parents() == [caller, caller]
        assert ids.next_id(tag) == 2  # the low water of ten ids
        assert until(lambda: len(telemetry.spans()) == 3)

    assert telemetry.names()[2] == "allocator.claim"
    assert telemetry.parents()[2] is None


def test_everything_else_that_comes_from_the_database(telemetry, face, embedded, tag):
    ids = telemetry.of(face(embedded))
    with telemetry.caller() as caller:
        ids.ticket(tag)
        ids.meteor()
        ids.snowflake()
        ids.reserve(tag, 7)
    about = [
        {key: value for key, value in one.attributes.items() if key != "db.system.name"} for one in telemetry.spans()
    ]

    assert telemetry.names() == [
        "allocator.ticket",
        "allocator.register_node",
        "allocator.lease_worker",
        "allocator.open",
        "allocator.claim",
    ]
    assert about == [
        {"db.operation.name": "ticket", "allocator.tag": tag},
        {"db.operation.name": "register_node"},
        {"db.operation.name": "lease_worker"},
        {"db.operation.name": "open_segment", "allocator.tag": tag},
        {"db.operation.name": "claim_segment", "allocator.tag": tag, "allocator.size": 7},
    ]
    assert set(telemetry.parents()) == {caller}


def test_the_lease_of_a_worker_number(telemetry, embedded, tag):
    with telemetry.of(Allocator(embedded)) as ids, telemetry.caller() as caller, ids.worker(tag):
        pass

    assert telemetry.names() == ["allocator.lease_number", "allocator.release_number"]
    assert [one.attributes["allocator.space"] for one in telemetry.spans()] == [tag, tag]
    assert telemetry.parents() == [caller, caller]


def test_a_tag_that_is_not_there_is_an_answer_and_no_error(telemetry, face, embedded, tag):
    ids = telemetry.of(face(embedded, create_missing=False))
    with pytest.raises(UnknownTag):
        ids.next_id(tag)
    (answered,) = telemetry.spans()

    assert (answered.status.status_code, "error.type" in answered.attributes) == (StatusCode.UNSET, False)
    assert "error.type" not in telemetry.points()["allocator.claim.duration"][0].attributes


def test_an_error_is_named_and_its_message_is_not_exported(telemetry, face, embedded, tag):
    with Allocator(embedded) as one:
        one.tags.create(tag, start_after=2**63 - 1)
    ids = telemetry.of(face(embedded))
    with telemetry.caller(), pytest.raises(Exhausted):
        ids.next_id(tag)
    _, failed = telemetry.spans()
    _, point = telemetry.points()["allocator.claim.duration"]

    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description == failed.attributes["error.type"] == "Exhausted"
    assert failed.events == ()
    assert point.attributes["error.type"] == "Exhausted"


def test_the_duration_of_each_operation(telemetry, face, embedded, tag):
    ids = telemetry.of(face(embedded))
    ids.next_id(tag)
    began = perf_counter()
    for _ in range(3):
        ids.ticket(tag)
    seconds = perf_counter() - began
    points = telemetry.points()["allocator.claim.duration"]
    by_operation = {one.attributes["db.operation.name"]: one for one in points}

    assert {name: one.count for name, one in by_operation.items()} == {
        "open_segment": 1,
        "claim_segment": 1,
        "ticket": 3,
    }
    assert by_operation["ticket"].explicit_bounds == SECONDS
    assert dict(by_operation["ticket"].attributes) == {"db.system.name": "sqlite", "db.operation.name": "ticket"}
    assert 0 < by_operation["ticket"].sum <= seconds


def test_an_allocator_in_use_keeps_its_ids_and_is_instrumented_once(telemetry, face, embedded, tag):
    ids = face(embedded, step=10, max_step=10)
    sequence = ids.sequence(tag)
    assert sequence.next_id() == 1
    telemetry.of(telemetry.of(ids))

    assert [sequence.next_id() for _ in range(10)] == list(range(2, 12))
    assert until(lambda: len(telemetry.spans()) >= 1)
    assert telemetry.names()[:1] == ["allocator.claim"]
    starts = [one.start_time for one in telemetry.spans()]
    assert len(starts) == len(set(starts)), "one span for a call"


def test_the_doctor_knows_an_instrumented_allocator(telemetry, tmp_path):
    with telemetry.of(Allocator(f"sqlite:///{tmp_path}/ids.db")) as ids:
        ids.next_id("order")
        assert examine(ids) == []
    with pytest.raises(InvalidSetting, match="is a service, but the doctor examines databases"):
        examine(telemetry.of(Allocator("http://127.0.0.1:9")))


def test_without_a_provider_ids_come_all_the_same(embedded, tag):
    with instrument(Allocator(embedded)) as ids:
        assert ids.next_ids(tag, 3) == [1, 2, 3]


# -- the service


RECORDS = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

file = open(os.environ["SPANS"], "a", buffering=1)
trace.set_tracer_provider(TracerProvider())
exporter = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\\n")
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
"""
"""A `sitecustomize.py`, as `opentelemetry-instrument` brings one."""

BLOCKS = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""


class Recording:
    """A service whose process records its spans in a file."""

    def __init__(self, url: str, folder: Path) -> None:
        self._file = folder / "spans"
        self.served = served_with(url, folder, RECORDS, SPANS=str(self._file))

    def spans(self) -> list[dict]:
        return [json.loads(line) for line in self._file.read_text().splitlines()] if self._file.exists() else []

    def of(self, tag: str) -> list[dict]:
        return [one for one in self.spans() if one["attributes"].get("allocator.tag") == tag]


def served_with(url: str, folder: Path, sitecustomize: str, **environment: str) -> Served:
    (folder / "sitecustomize.py").write_text(sitecustomize)
    return Served(url, PYTHONPATH=str(folder), **environment)


@pytest.fixture(scope="module")
def recording(shared_database: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    made = Recording(shared_database("sqlite"), tmp_path_factory.mktemp("recording"))
    yield made
    made.served.close()


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TICKETS, IDS = "/v1/tickets/{}", "/v1/sequences/{}/ids"


def test_a_request_names_the_parent_of_its_spans(recording, tag):
    for path in (TICKETS, IDS):
        before = len(recording.of(tag))
        answer = recording.served.post(path.format(tag), traceparent=f"00-{TRACE}-{SPAN}-01", tracestate="one=1")
        spans = recording.of(tag)
        assert (answer.status, len(spans) > before, path) == (200, True, path)

    assert {one["parent_id"] for one in spans} == {f"0x{SPAN}"}
    assert {one["context"]["trace_id"] for one in spans} == {f"0x{TRACE}"}
    assert {one["context"]["trace_state"] for one in spans} == {"['{key=one, value=1}']"}


def test_a_trace_leads_from_a_client_to_the_database(telemetry, recording, face, tag):
    ids = telemetry.of(face(recording.served.address))
    with telemetry.caller() as caller:
        ids.ticket(tag)
    (ours,) = telemetry.spans()
    (theirs,) = recording.of(tag)

    assert (ours.name, ours.parent.span_id) == ("allocator.ticket", caller)
    assert dict(ours.attributes) == {"db.operation.name": "ticket", "allocator.tag": tag}
    assert theirs["parent_id"] == f"0x{ours.context.span_id:016x}"
    assert theirs["context"]["trace_id"] == f"0x{ours.context.trace_id:032x}"
    assert theirs["attributes"]["db.system.name"] == "sqlite"


def test_a_client_that_is_not_instrumented_passes_its_span_on(telemetry, recording, face, tag):
    ids = face(recording.served.address)
    with telemetry.caller() as caller:
        ids.ticket(tag)

    assert [one["parent_id"] for one in recording.of(tag)] == [f"0x{caller:016x}"]


# -- without OpenTelemetry


def test_allocators_work_without_it(embedded, recording, tag):
    code = f"""{BLOCKS}
import asyncio
from allocator import Allocator, AsyncAllocator

async def draw():
    async with AsyncAllocator({embedded!r}) as ids:
        return await ids.next_id({tag!r})

with Allocator({embedded!r}) as ids, Allocator({recording.served.address!r}) as client:
    assert ids.next_ids({tag!r}, 2) == [1, 2]
    assert client.ticket({tag!r}) > 0
assert asyncio.run(draw()) > 2
assert "opentelemetry" not in sys.modules
try:
    import allocator.integrations.opentelemetry
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert "pip install 'segment-allocator[opentelemetry]'" in done.stdout
