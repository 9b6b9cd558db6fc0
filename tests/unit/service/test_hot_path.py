"""What stands before the framework."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

from starlette.types import Message, Receive, Scope, Send

from allocator.service.hot_path import HotPath


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
