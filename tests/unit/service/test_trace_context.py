"""What the service keeps of a request for the spans of its claims."""

from __future__ import annotations

import asyncio

import pytest

from allocator.service.hot_path import with_trace_context
from allocator.telemetry.trace_context import incoming

HEADERS = [(b"traceparent", b"00-x")]


async def nothing(*sent: object) -> dict:
    return {}


def test_the_headers_are_kept_while_a_request_is_answered():
    found = []

    async def application(scope, receive, send) -> None:
        found.append(incoming.get())
        raise RuntimeError("of the application")

    async def ask(scope: dict) -> None:
        with pytest.raises(RuntimeError, match="of the application"):
            await with_trace_context(application)(scope, nothing, nothing)
        found.append(incoming.get())

    for scope in ({"type": "http", "headers": HEADERS}, {"type": "lifespan"}):
        asyncio.run(ask(scope))

    assert found == [HEADERS, (), (), ()]
