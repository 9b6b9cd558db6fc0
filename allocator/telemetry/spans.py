"""A client span of OpenTelemetry for each call to the database, and its duration as a metric.

Uses the API alone: without a provider of the application nothing is recorded. The names of attributes follow the
semantic conventions for databases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar, cast

from opentelemetry.metrics import Histogram, Meter, MeterProvider, get_meter
from opentelemetry.trace import SpanKind, StatusCode, TracerProvider, get_tracer

from allocator import __version__
from allocator.generators.backend_protocol import Backend
from allocator.telemetry.observed import VERBS, Observed, failed
from allocator.telemetry.trace_context import parent

T = TypeVar("T")
Attributes = dict[str, str | int | Sequence[str]]

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
"""The buckets of the conventions for databases; those of the SDK suit milliseconds."""

NAMES = {verb: f"allocator.{verb.removesuffix('s').removesuffix('_segment')}" for verb in VERBS}

ABOUT: Mapping[str, Callable[..., Attributes]] = {
    "open_segment": lambda template, *_: {"allocator.tag": template.name},
    "open_segments": lambda templates, *_: {"allocator.tags": [one.name for one in templates]},
    "claim_segment": lambda name, size, *_: {"allocator.tag": name, "allocator.size": size},
    "claim_segments": lambda claims: {
        "allocator.tags": [*claims],
        "allocator.size": sum(one.size for one in claims.values()),
    },
    "ticket": lambda kind, *_: {"allocator.tag": kind},
    "lease_number": lambda claim: {"allocator.space": claim.space},
    "renew_number": lambda lease, *_: {"allocator.space": lease.space},
    "release_number": lambda lease, *_: {"allocator.space": lease.space},
}
"""The attributes of a span, from the arguments of its verb. Spans of other verbs have none."""


def histogram(meter: Meter) -> Histogram:
    create = partial(meter.create_histogram, "allocator.claim.duration", "s", "Duration of a call to the database")
    try:
        return create(explicit_bucket_boundaries_advisory=SECONDS)
    except TypeError:  # an API of before 1.30
        return create()


class Spans:
    """Wraps calls in spans. `system`: the kind of database, as the conventions name it."""

    def __init__(
        self, system: str | None, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
    ) -> None:
        self._labels = {"db.system.name": system} if system else {}
        self._tracer = get_tracer("allocator", __version__, tracer_provider)
        self._duration = histogram(get_meter("allocator", __version__, meter_provider))

    def __call__(self, verb: str, work: Callable[..., T], *args: Any, **options: Any) -> T:
        labels = {**self._labels, "db.operation.name": verb}
        attributes: Attributes = {**labels, **(ABOUT[verb](*args) if verb in ABOUT else {})}
        began = perf_counter()
        with self._tracer.start_as_current_span(
            NAMES[verb],
            parent(),
            SpanKind.CLIENT,
            attributes,
            record_exception=False,  # messages name hosts
            set_status_on_exception=False,
        ) as span:
            try:
                return work(*args, **options)
            except BaseException as error:
                if failed(verb, error):
                    labels["error.type"] = type(error).__name__
                    span.set_attribute("error.type", labels["error.type"])
                    span.set_status(StatusCode.ERROR, labels["error.type"])
                raise
            finally:
                self._duration.record(perf_counter() - began, labels)


def traced(
    backend: Backend, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> Backend:
    """Wrap a backend to trace its calls, once."""
    if isinstance(getattr(backend, "around", None), Spans):
        return backend
    spans = Spans(getattr(backend, "system", None), tracer_provider, meter_provider)
    return cast("Backend", Observed(backend, spans))
