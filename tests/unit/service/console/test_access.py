"""Basic with a token as the password: where it is asked for, and where it is refused."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from datetime import UTC, datetime

import pytest

from allocator.errors import AllocatorError
from allocator.rules.token import VERBS, Token, digest_of
from allocator.service.auth import TokenCache
from allocator.service.console.access import PLAIN, principal_of
from allocator.service.error_responses import Unauthorized, status_of

SECRET = "allocator_known"


def basic(password: str, user: str = "anybody") -> bytes:
    return b"Basic " + b64encode(f"{user}:{password}".encode())


def found(authorization: bytes = b"", scheme: str = "http", tokens: bool = True, **headers: str) -> str:
    """The name of the token that is found."""

    async def run() -> str:
        token = Token(1, "known", digest_of(SECRET.encode()), VERBS, ("*",), datetime.now(UTC))
        cache = TokenCache(lambda: ([token] if tokens else [], tokens), not tokens)
        await cache.refresh()
        sent = {name.encode().replace(b"_", b"-"): value.encode() for name, value in ({"host": "x"} | headers).items()}
        sent |= {b"authorization": authorization} if authorization else {}
        return (await principal_of(cache, {"type": "http", "scheme": scheme}, sent)).token.name

    return asyncio.run(run())


def test_a_token_is_the_password_whoever_the_user_is():
    for sent in (
        basic(SECRET),
        basic(SECRET, ""),
        basic(SECRET).replace(b"Basic", b"basic"),
        f"Bearer {SECRET}".encode(),
    ):
        assert found(sent, "https") == "known", sent
    for sent in (b"", b"Basic", b"Basic %%", b"Basic YTpi", basic("", SECRET), b"Digest x"):
        with pytest.raises(Unauthorized):
            found(sent, "https")


def test_no_password_is_taken_from_the_network_without_encryption():
    """Of a proxy that ends TLS the server has taken the scheme over, if it trusts it."""
    for headers in ({}, {"host": "ids.example"}, {"host": "localhost:8000", "x_forwarded_proto": "https"}):
        for sent in (b"", basic(SECRET)):
            with pytest.raises(AllocatorError, match="put TLS in front") as refused:
                found(sent, **headers)
            assert (status_of(refused.value), str(refused.value)) == (403, PLAIN), headers
    for host in ("localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000"):
        assert found(basic(SECRET), host=host) == "known"


def test_a_service_that_is_open_to_this_machine_asks_nobody():
    assert found(tokens=False, host="localhost") == "open"
    with pytest.raises(Unauthorized, match="serves this machine alone"):
        found(tokens=False, host="evil.example")
