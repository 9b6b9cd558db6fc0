"""Sessions, and whose session or token a request of the console bears."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from itsdangerous import TimestampSigner
from starlette.requests import Request
from starlette.responses import HTMLResponse

from allocator.rules.token import VERBS, Token, digest_of
from allocator.service.auth import TokenCache
from allocator.service.console import sign_in as module
from allocator.service.console.sign_in import (
    LIFETIME,
    Sessions,
    SignIn,
    User,
    cookie_name,
    is_from_us,
    own_path,
)
from allocator.service.console.views import address_of
from allocator.service.error_responses import Unauthorized

SESSIONS = Sessions(b"k" * 32)
HOST = "ids.example"
DIGEST = bytes(range(32))


def token(name: str) -> Token:
    return Token(1, name, digest_of(name.encode()), VERBS, ("*",), datetime.now(UTC))


def session_of(name: str) -> str:
    return SESSIONS.issue(bytes.fromhex(digest_of(name.encode())))


def request_of(host: str = HOST, **headers: str) -> Request:
    pairs = [(name.encode(), value.encode()) for name, value in ({"host": host} | headers).items()]
    return Request(
        {"type": "http", "method": "GET", "scheme": "http", "path": "/", "query_string": b"", "headers": pairs}
    )


def token_cache(tokens: list[Token]) -> TokenCache:
    return TokenCache(lambda: (list(tokens), True), False)


def sign_in(known: TokenCache, pages: Any = None) -> SignIn:
    return SignIn(known, SESSIONS, pages)


def user(*known: str, **headers: str) -> User:
    async def run() -> User:
        found = token_cache([token(name) for name in known])
        await found.refresh()
        return await sign_in(found).user(request_of(**headers))

    return asyncio.run(run())


def test_a_bearer_token_stands_before_the_session_and_nothing_else_does():
    for authorization, name in [
        ("Basic dXNlcjpwYXNz", "browser"),
        ("Digest x", "browser"),
        ("Bearer script", "script"),
        ("bearer script", "script"),
    ]:
        cookie = f"allocator={session_of('browser')}"

        assert user("browser", "script", authorization=authorization, cookie=cookie).name == name, authorization


def test_what_is_sent_for_a_proxy_is_no_token():
    cookie = f"allocator={session_of('x')}"
    assert user("x", authorization="Basic x", cookie=cookie).token.name == "x"
    with pytest.raises(Unauthorized):
        user("x", authorization="Basic x")
    with pytest.raises(Unauthorized):
        user("x", authorization="Bearer wrong", cookie=cookie)


# -- sessions


def test_a_session_opens_with_its_key_while_it_lasts(monkeypatch):
    clock = [1000]
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda self: clock[0])
    monkeypatch.setattr(module, "time", lambda: clock[0])
    sessions = Sessions(b"k" * 32)
    cookie = sessions.issue(DIGEST)

    assert sessions.digest(cookie) == DIGEST
    assert Sessions(b"j" * 32).digest(cookie) is None
    clock[0] += LIFETIME - 1
    assert sessions.digest(cookie) == DIGEST
    clock[0] += 1
    assert sessions.digest(cookie) is None
    clock[0] = 990  # set back
    assert sessions.digest(cookie) == DIGEST


def test_no_part_of_a_session_can_be_changed():
    sessions = Sessions(b"k" * 32)
    cookie = sessions.issue(DIGEST)
    for at in range(len(cookie)):
        # Two bits of the last letter say nothing, so the other letter must be far from it.
        other = chr(ord(cookie[at]) ^ 1) if at < len(cookie) - 1 else "A" if cookie[at] > "Z" else "z"
        forged = cookie[:at] + other + cookie[at + 1 :]
        assert sessions.digest(forged) is None
    for text in ("", ".", "a.b.c.d", "é.é", "\udcff", cookie[:-1], f"{cookie}.x"):
        assert sessions.digest(text) is None


def test_where_a_change_comes_from():
    for headers, is_ours in [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://here", "host": "here"}, False),
        ({"origin": "https://here:8000", "host": "here:8000"}, True),
        ({"origin": "https://here:8001", "host": "here:8000"}, False),
        ({"origin": "null", "host": "null"}, False),
        ({"host": "here"}, False),
        ({}, False),
    ]:
        assert is_from_us(headers) is is_ours, headers


def test_names_of_cookies_tell_services_of_one_machine_apart():
    https = {"type": "http", "scheme": "https"}

    assert cookie_name(request_of("127.0.0.1:8000")) == "allocator-8000"
    assert cookie_name(Request(https | {"headers": [(b"host", b"ids.example:8443")]})) == "__Host-allocator-8443"
    assert cookie_name(Request(https | {"headers": [(b"host", b"ids.example")]})) == "__Host-allocator"


def test_where_to_go_after_signing_in():
    expected = {
        "/console/fleet": "/console/fleet",
        "/?q=a": "/?q=a",
        "": "/",
        "//evil": "/",
        "/\\evil": "/",
        "x": "/",
        "/a\nb": "/",
    }

    assert {given: own_path(given) for given in expected} == expected


def test_a_session_that_another_worker_made_of_a_new_token_is_looked_for():
    tokens: list[Token] = []

    async def run() -> str:
        found = token_cache(tokens)
        await found.refresh()
        tokens.append(token("new"))
        asking = asyncio.create_task(sign_in(found).user(request_of(cookie=f"allocator={session_of('new')}")))
        await asyncio.sleep(0)
        await found.refresh()
        return (await asking).name

    assert asyncio.run(run()) == "new"


def test_a_host_that_is_none_breaks_no_page(monkeypatch):
    def fail(request: Request) -> None:
        raise ValueError("Invalid IPv6 URL")

    for name in ("url", "base_url"):
        monkeypatch.setattr(Request, name, property(fail))
    shown: dict[str, Any] = {}
    pages = SimpleNamespace(render=lambda *given, **values: shown.update(values) or HTMLResponse())
    request = request_of("[::1")
    asyncio.run(sign_in(token_cache([]), pages).show(request))

    assert shown["is_plain"]
    assert cookie_name(request) == "allocator-1"
    assert address_of(request) == "http://[::1"
