"""A backend that reports the duration and outcome of each call to the database."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from time import perf_counter
from typing import Any, cast

from allocator.errors import AllocatorError
from allocator.generators.backend_protocol import Backend

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


class Observed:
    """Forwards all calls to `backend`, and times the verbs."""

    def __init__(self, backend: Backend, report: Report) -> None:
        self._report = report
        self._backend = backend
        for verb, kind in VERBS.items():
            setattr(self, verb, partial(self._timed, kind, getattr(backend, verb)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def _timed(self, kind: str, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        began, outcome = perf_counter(), "ok"
        tags: Collection[str] = ()
        try:
            result = work(*args, **options)
            if kind == "segment":
                tags = result if isinstance(result, dict) else args[:1]
            return result
        except AllocatorError as error:
            outcome = type(error).__name__
            raise
        finally:
            self._report(kind, outcome, perf_counter() - began, tags)


def observed(backend: Backend, report: Report) -> Backend:
    """Wrap a backend to report its calls."""
    return cast("Backend", Observed(backend, report))
