"""A backend whose calls to the database are observed: timed, or traced."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from time import perf_counter
from typing import Any, cast

from allocator.errors import AllocatorError, UnknownTag
from allocator.generators.backend_protocol import Backend

Around = Callable[..., Any]
"""Called with the name of a verb, the verb and its arguments. Calls the verb, and returns its result.

Runs on the threads of the claims."""

Report = Callable[[str, str, float, Collection[str]], None]
"""Called with the kind of call, "ok" or the name of the error, the seconds, and the claimed tags.

Runs on the threads of the claims."""

VERBS = {
    "open_segment": "tag",
    "open_segments": "tag",
    "claim_segment": "segment",
    "claim_segments": "segment",
    "register_node": "node",
    "lease_worker": "lease",
    "lease_number": "lease",
    "renew_number": "lease",
    "release_number": "lease",
    "ticket": "ticket",
}


def failed(verb: str, error: BaseException) -> bool:
    """Tell whether a call failed. That there is no such tag is an answer, as to a misspelt name."""
    return not (VERBS[verb] == "tag" and isinstance(error, UnknownTag))


class Observed:
    """Forwards all calls to `backend`, the verbs by way of `around`."""

    def __init__(self, backend: Backend, around: Around) -> None:
        self.around = around
        self.backend = backend
        for verb in VERBS:
            setattr(self, verb, partial(around, verb, getattr(backend, verb)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


class Timed:
    """Reports the duration and outcome of each call."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def __call__(self, verb: str, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        kind, began, outcome = VERBS[verb], perf_counter(), "ok"
        tags: Collection[str] = ()
        try:
            result = work(*args, **options)
            if kind == "segment":
                tags = args[:1] if verb == "claim_segment" else result or ()
            return result
        except AllocatorError as error:
            if failed(verb, error):
                outcome = type(error).__name__
            raise
        finally:
            self._report(kind, outcome, perf_counter() - began, tags)


def timed(backend: Backend, report: Report) -> Backend:
    """Wrap a backend to report its calls."""
    return cast("Backend", Observed(backend, Timed(report)))
