"""What stands before the framework."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from unittest.mock import Mock

import pytest
from starlette.types import Message, Receive, Scope, Send

from allocator.rules.token import VERBS, Token, digest_of
from allocator.service.auth import Principal
from allocator.service.hot_path import HotPath
from allocator.service.served_ids import Source


def test_the_application_has_started_once_the_server_has_heard_so():
    """Then the service says that it listens, and a supervisor stops the process before it."""
    seen = []

    async def framework(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "lifespan.startup.complete"})

    async def send(message: Message) -> None:
        seen.append((message["type"], application.has_started.is_set()))

    application = HotPath(framework, Mock(), Mock(), Mock())
    asyncio.run(application({"type": "lifespan"}, Mock(), send))

    assert seen == [("lifespan.startup.complete", False)]
    assert application.has_started.is_set()


async def given(count: int) -> list[int]:
    return [1] * count


@pytest.mark.parametrize(("path", "query"), [("/v1/meteor", b"count=1000"), ("/v1/inspect/1", b"")])
def test_a_thousand_requests_of_one_token_have_few_answers_before_the_next_id_of_another(path, query):
    """Each takes the time of many ids, and all came before it: a batch of the hot path, and what the framework does."""
    answered: list[str] = []

    async def framework(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    tokens = Mock()
    principals = {}
    for name in ("flood", "victim"):
        principal = Principal(Token(1, name, digest_of(name.encode()), VERBS, ("*",), datetime.now(UTC)))
        principal.hot_sources["/v1/meteor"] = Source("meteor", given, lambda: 1)
        principals[name.encode()] = principal
    tokens.find_in_memory = lambda headers: principals[headers[b"authorization"]]
    application = HotPath(framework, tokens, Mock(), Mock())

    async def ask(name: str, path: str, query: bytes) -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered.append(name)

        headers = [(b"host", b"ids"), (b"authorization", name.encode())]
        scope = {"type": "http", "method": "POST", "path": path, "query_string": query, "headers": headers}
        await application({**scope, "http_version": "1.1"}, Mock(), send)

    async def run() -> None:
        flood = [asyncio.create_task(ask("flood", path, query)) for _ in range(1000)]
        await asyncio.create_task(ask("victim", "/v1/meteor", b""))
        assert len(answered) < 5
        await asyncio.gather(*flood)

    asyncio.run(run())
    assert answered.count("flood") == 1000
