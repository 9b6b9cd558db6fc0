"""One record of the log for each claim."""

import logging
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.kit import SQLITE
from support.servers.administrator import values

from allocator import Allocator

DOCUMENT = Path(__file__).parents[2] / "docs" / "integrations.md"


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "allocator.claims"]


def test_the_log_has_each_claim_once_without_a_gap_or_an_overlap(fresh, caplog):
    """Several allocators, several threads, claims of one tag and of many: the log says what the rows say."""
    tags = [f"tag-{number}" for number in range(8)]
    with (
        closing(Allocator(fresh, step=7, max_step=7)) as one,
        closing(Allocator(fresh, step=7, max_step=7)) as two,
        ThreadPoolExecutor(4) as pool,
    ):
        list(pool.map(lambda ids: [ids.next_ids(tag, 20) for tag in tags], [one, two] * 4))
        one.reserve("tag-0", 1234)
    reached = dict(zip(tags, values(fresh, "SELECT max_value FROM allocator_segment ORDER BY tag"), strict=True))
    lines = [record.getMessage() for record in records(caplog)]
    claims = [re.fullmatch(r"claimed tag=(\S+) first=(\d+) last=(\d+) step=(\d+)", line).groups() for line in lines]

    for record, (name, first, last, step) in zip(records(caplog), claims, strict=True):
        assert (record.tag, record.size) == (name, len(range(int(first), int(last) + 1, int(step))))
        assert 0 < record.ms < 60_000
    for tag in tags:
        found = [range(int(first), int(last) + 1, int(step)) for name, first, last, step in claims if name == tag]
        assert sorted(id_ for ids in found for id_ in ids) == list(range(1, reached[tag] + 1))


@SQLITE
def test_the_log_is_off_unless_its_level_is_set(fresh, caplog):
    caplog.set_level(logging.INFO, "allocator.claims")
    with closing(Allocator(fresh)) as ids:
        ids.next_id("order")

    assert records(caplog) == []


@SQLITE
def test_a_handler_that_fails_burns_no_claim(fresh, monkeypatch):
    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("no space left on device")

    monkeypatch.setattr(logging.getLogger("allocator.claims"), "handlers", [Full()])
    with closing(Allocator(fresh)) as ids:
        assert ids.next_id("order") == 1


@SQLITE
def test_the_recipe_for_opentelemetry_makes_a_span_of_each_claim_under_the_call_that_asked_for_it(fresh, monkeypatch):
    logger, exporter, tracers = logging.getLogger("allocator.claims"), InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)
    for name, value in (("handlers", []), ("level", logging.NOTSET), ("propagate", True)):
        monkeypatch.setattr(logger, name, value)
    recipe = DOCUMENT.read_text().partition("## OpenTelemetry")[2].partition("```python\n")[2].partition("```")[0]
    exec(recipe, {})  # the document's own
    with closing(Allocator(fresh, step=1000)) as ids, trace.get_tracer("shop").start_as_current_span("order") as caller:
        ids.next_ids("order", 50)
    (claim,) = [span for span in exporter.get_finished_spans() if span.name != "order"]

    assert (claim.name, claim.parent.span_id) == ("allocator claim", caller.get_span_context().span_id)
    assert dict(claim.attributes) == {"allocator.tag": "order", "allocator.size": 1000}
    assert 0 < claim.end_time - claim.start_time < 60e9
