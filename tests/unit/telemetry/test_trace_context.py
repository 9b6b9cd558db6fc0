"""The headers of a request: which parent they name, and what of them is ignored."""

from __future__ import annotations

import subprocess
import sys

from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, SpanContext, TraceFlags

from allocator.telemetry.trace_context import incoming, outgoing, parent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
VALID = f"00-{TRACE}-{SPAN}-01"
OTHER = SpanContext(7, 8, is_remote=False, trace_flags=TraceFlags(1))


def parent_of(*headers: tuple[str, str]) -> SpanContext:
    """The parent of a span in a request with these headers."""
    token = incoming.set([(name.encode(), value.encode("latin-1")) for name, value in headers])
    try:
        return trace.get_current_span(parent()).get_span_context()
    finally:
        incoming.reset(token)


def test_the_span_of_the_client_is_the_parent():
    found = parent_of(("host", "x"), ("traceparent", VALID), ("tracestate", "one=1"), ("tracestate", "two=2"))

    assert (f"{found.trace_id:032x}", f"{found.span_id:016x}", found.is_remote) == (TRACE, SPAN, True)
    assert found.trace_flags.sampled
    assert dict(found.trace_state) == {"one": "1", "two": "2"}


def test_an_invalid_header_is_ignored():
    for value in [
        "",
        "x",
        VALID.upper(),
        VALID + "-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}",
        VALID + " " * 600,
    ]:
        assert parent_of(("traceparent", value)) == INVALID_SPAN.get_span_context(), value


def test_a_span_inside_of_the_service_comes_before_the_header():
    with trace.use_span(NonRecordingSpan(OTHER)):
        assert parent_of(("traceparent", VALID)) == OTHER


def test_a_client_names_the_current_span():
    with trace.use_span(NonRecordingSpan(OTHER)):
        assert outgoing() == {"traceparent": f"00-{7:032x}-{8:016x}-01"}
    assert outgoing() == {}


def test_a_client_does_not_import_the_api_by_itself():
    code = (
        "import sys; from allocator.remote.http import Servers; from allocator.telemetry.trace_context import outgoing;"
        "print(outgoing(), 'opentelemetry' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "{} False\n"
