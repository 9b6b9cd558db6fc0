"""Whose session or token a request of the console bears."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse

from allocator.rules.token import ANONYMOUS, VERBS, Token, digest_of
from allocator.service.auth import Book
from allocator.service.console.sessions import Sessions
from allocator.service.console.sign_in import Signing
from allocator.service.console.views import address_of
from allocator.service.console.visitors import Visitor, Visitors, name_for
from allocator.service.problems import Unauthorized

SESSIONS = Sessions(b"k" * 32)
HOST = "ids.example"


def token(name: str) -> Token:
    return Token(1, name, digest_of(name.encode()), VERBS, ("*",), None, None, datetime.now(UTC))


def session_of(name: str) -> str:
    return SESSIONS.issue(bytes.fromhex(digest_of(name.encode())))


def request_of(host: str = HOST, **headers: str) -> Request:
    pairs = [(name.encode(), value.encode()) for name, value in ({"host": host} | headers).items()]
    return Request(
        {"type": "http", "method": "GET", "scheme": "http", "path": "/", "query_string": b"", "headers": pairs}
    )


def book(tokens: list[Token]) -> Book:
    return Book(lambda: (list(tokens), True), 1, False)


def visitor(*known: str, **headers: str) -> Visitor:
    async def run() -> Visitor:
        found = book([token(name) for name in known])
        await found.refresh()
        return await Visitors(found, SESSIONS).of(request_of(**headers))

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("authorization", "name"),
    [
        ("Basic dXNlcjpwYXNz", "browser"),
        ("Digest x", "browser"),
        ("Bearer script", "script"),
        ("bearer script", "script"),
    ],
)
def test_a_bearer_token_stands_before_the_session_and_nothing_else_does(authorization, name):
    cookie = f"allocator={session_of('browser')}"

    assert visitor("browser", "script", authorization=authorization, cookie=cookie).name == name


def test_what_is_sent_for_a_proxy_is_no_token():
    assert visitor("x", ANONYMOUS, authorization="Basic x").token.name == ANONYMOUS
    with pytest.raises(Unauthorized):
        visitor("x", authorization="Basic x")
    with pytest.raises(Unauthorized):
        visitor("x", ANONYMOUS, authorization="Bearer wrong")


def test_a_session_that_another_worker_made_of_a_new_token_is_looked_for(monkeypatch):
    monkeypatch.setattr("allocator.service.auth.AT_ONCE", 0.0)
    tokens: list[Token] = []

    async def run() -> str:
        found = book(tokens)
        await found.refresh()
        tokens.append(token("new"))
        return (await Visitors(found, SESSIONS).of(request_of(cookie=f"allocator={session_of('new')}"))).name

    assert asyncio.run(run()) == "new"


def test_a_host_that_is_none_breaks_no_page(monkeypatch):
    def fail(request: Request) -> None:
        raise ValueError("Invalid IPv6 URL")

    for name in ("url", "base_url"):
        monkeypatch.setattr(Request, name, property(fail))
    shown: dict[str, Any] = {}
    frames: Any = SimpleNamespace(show=lambda *given, **values: shown.update(values) or HTMLResponse())
    request = request_of("[::1")
    asyncio.run(Signing(frames, Visitors(book([]), SESSIONS)).ask(request))

    assert shown["is_plain"]
    assert name_for(request) == "allocator-1"
    assert address_of(request) == "http://[::1"
