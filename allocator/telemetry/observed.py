"""A backend whose calls to the database are timed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from time import perf_counter
from typing import Any, cast

from allocator.errors import AllocatorError, UnknownTag
from allocator.generators.backend_protocol import Backend

Report = Callable[[str, str, float, Collection[str]], None]
"""Called with the kind of call, "ok" or the name of the error, the seconds, and the claimed tags.

Runs on the threads of the claims."""

VERBS = {
    "open_segment": "tag",
    "claim_segment": "segment",
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


class Timed:
    """Forwards all calls to `backend`, and reports the duration and outcome of its verbs."""

    def __init__(self, backend: Backend, report: Report) -> None:
        self._backend, self._report = backend, report
        for verb in VERBS:
            setattr(self, verb, partial(self._call, verb, getattr(backend, verb)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def _call(self, verb: str, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        kind, began, outcome = VERBS[verb], perf_counter(), "ok"
        tags: Collection[str] = ()
        try:
            result = work(*args, **options)
            if kind == "segment":
                tags = args[:1]
            return result
        except AllocatorError as error:
            if failed(verb, error):
                outcome = type(error).__name__
            raise
        finally:
            self._report(kind, outcome, perf_counter() - began, tags)


def timed(backend: Backend, report: Report) -> Backend:
    """Wrap a backend to report its calls."""
    return cast("Backend", Timed(backend, report))
