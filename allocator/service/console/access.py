"""Who may see a page of the console: HTTP Basic with a token as the password, and any user name.

A browser keeps the token, and sends it with each request to this service, also with a form of a foreign site. So Basic
opens pages that only read, and nothing else: the API takes bearer tokens alone, which no browser sends by itself.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING

from allocator.schemes.token import ALL, READ, Token
from allocator.service.auth import PROXY_HEADERS, Principal, TokenCache, is_bearer, is_here
from allocator.service.error_responses import HttpRefusal
from allocator.service.log_config import NUMBER

if TYPE_CHECKING:
    from starlette.types import Scope

CHALLENGE = 'Basic realm="allocator", charset="UTF-8"'
PLAIN = (
    "the console takes a token only over https, or at http://localhost on its own machine; put TLS in front of the "
    "service by a proxy that it trusts (FORWARDED_ALLOW_IPS), or start it with --certificate and --key"
)


def sees_all(token: Token) -> bool:
    return READ in token.verbs and ALL in token.tags


async def principal_of(token_cache: TokenCache, scope: Scope, headers: Mapping[bytes, bytes]) -> Principal:
    """Find the token of a request. Raises `Unauthorized`, or `HttpRefusal` where a token could be overheard."""
    scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
    if not is_bearer(scheme) and not token_cache.is_open:
        if not is_private(scope, headers):
            raise HttpRefusal(403, PLAIN)
        headers = {**headers, b"authorization": b"Bearer " + password_of(scheme, given)}
    principal = await token_cache.find(headers)
    scope[NUMBER] = principal.token.number
    return principal


def is_private(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether nobody on the network can read the request: it is encrypted, or stays on the browser's machine.

    The scheme is that of our own TLS, or of a proxy that the server trusts. The name in the address bar decides what
    stays on a machine: a browser resolves these to itself, whatever the address of the peer is in a container.
    """
    return scope["scheme"] == "https" or (is_here(headers.get(b"host", b"")) and PROXY_HEADERS.isdisjoint(headers))


def password_of(scheme: bytes, given: bytes) -> bytes:
    """The password of Basic credentials (RFC 7617); empty for anything else."""
    if scheme.lower() != b"basic":
        return b""
    try:
        return b64decode(given, validate=True).partition(b":")[2].strip()  # a copy may have spaces
    except ValueError:
        return b""
