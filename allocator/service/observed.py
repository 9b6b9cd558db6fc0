"""A backend that reports how long each call of the database took, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from time import perf_counter
from typing import Any, cast

from allocator.errors import AllocatorError
from allocator.generators.backend_protocol import Backend

Report = Callable[[str, str, float, Collection[str]], None]
"""What was asked for, "ok" or the name of the error, the seconds it took, and the tags that were claimed.

Called on the threads of the claims."""

VERBS = {
    "open_segment": "tag",
    "open_segments": "tag",
    "claim_segment": "segment",
    "claim_segments": "segment",
    "register_node": "node",
    "lease_worker": "lease",
    "ticket": "ticket",
}


class Observed:
    """Passes everything on to `backend`, and times the verbs."""

    def __init__(self, backend: Backend, report: Report) -> None:
        self._report = report
        self._backend = backend
        for verb, what in VERBS.items():
            setattr(self, verb, partial(self._timed, what, getattr(backend, verb)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def _timed(self, what: str, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        began, outcome = perf_counter(), "ok"
        tags: Collection[str] = ()
        try:
            result = work(*args, **options)
            if what == "segment":
                tags = result if isinstance(result, dict) else args[:1]
            return result
        except AllocatorError as error:
            outcome = type(error).__name__
            raise
        finally:
            self._report(what, outcome, perf_counter() - began, tags)


def observed(backend: Backend, report: Report) -> Backend:
    """The backend, with its calls reported."""
    return cast("Backend", Observed(backend, report))
