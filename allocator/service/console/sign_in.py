"""Users of the console: sessions, sign-in and sign-out, which other sites cannot send (CSRF).

The sign-in page exchanges a token for a session cookie, since browsers send no bearer tokens. The cookie, signed by
`itsdangerous`, holds the digest of the token, a timestamp and the HMAC-SHA256 of both. Each start of the
service makes a new key, so no other service accepts the cookie.

A stolen cookie is a session of this console for at most `LIFETIME` seconds. It draws no ids, since the API accepts
only bearer tokens, and it ends when the token is revoked. docs/service.md lists what an attacker can do.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from time import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from itsdangerous import BadSignature, TimestampSigner

from allocator.errors import AccessDenied
from allocator.rules.token import ADMINISTER, DRAW, READ, Token
from allocator.service.auth import EVERYTHING, STARTING, Principal, TokenCache, is_bearer, is_here, note_token
from allocator.service.console.rendering import Pages, redirect
from allocator.service.dispatch import MAX_FORM, body_within, headers_of
from allocator.service.error_responses import Unauthorized

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

LIFETIME = 8 * 3600
"""Seconds of a session; activity does not extend it."""
ALL_TAGS = "*"


class Sessions:
    """Signs and verifies session cookies."""

    def __init__(self, key: bytes) -> None:
        self._cookies = TimestampSigner(key, salt=b"allocator session", digest_method=sha256)

    def issue(self, digest: bytes) -> str:
        """Make the cookie of a new session."""
        return self._cookies.sign(digest.hex()).decode()

    def digest(self, cookie: str) -> bytes | None:
        """The digest of the session's token, or None for an invalid or expired cookie."""
        try:
            value, issued = self._cookies.unsign(cookie.encode(errors="replace"), return_timestamp=True)
        except BadSignature:
            return None
        # Not `max_age`: it also refuses cookies from the future, so a clock set back would sign people out.
        is_over = time() >= issued.timestamp() + LIFETIME
        return None if is_over else bytes.fromhex(value.decode())


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request. `session` is the cookie, or empty."""

    principal: Principal
    session: str

    @property
    def token(self) -> Token:
        return self.principal.token

    @property
    def name(self) -> str:
        return "open to this machine" if self.token is EVERYTHING else self.token.name

    @property
    def sees_all(self) -> bool:
        return READ in self.token.verbs and ALL_TAGS in self.token.tags

    @property
    def is_operator(self) -> bool:
        """Whether the user may see names of hosts and databases: shards, nodes, leases, findings of the doctor."""
        return self.sees_all and ADMINISTER in self.token.verbs

    def sees(self, tag: str) -> bool:
        return self.token.may(READ, tag)

    def check_operator(self) -> None:
        if not self.is_operator:
            raise AccessDenied("this page needs a token that may read and administer all tags")

    def check_sees(self, tag: str) -> None:
        """Allow the settings of a tag, for which the right to draw is enough, as in the API. Rates need `sees`."""
        if not self.sees(tag):
            self.principal.check(DRAW, tag)


class SignIn:
    """Finds the user of a request, and serves the sign-in page."""

    def __init__(self, token_cache: TokenCache, sessions: Sessions, pages: Pages) -> None:
        self._token_cache = token_cache
        self._sessions = sessions
        self._pages = pages

    async def user(self, request: Request) -> User:
        """Find the user. Raises `Unauthorized` if sign-in helps."""
        session, headers = request.cookies.get(cookie_name(request), ""), without_foreign(headers_of(request))
        principal = await self._of_session(session) if b"authorization" not in headers else None
        if principal is None:
            session, principal = "", await self._token_cache.find(headers)
        note_token(request.scope, principal)
        return User(principal, session)

    async def _of_session(self, session: str) -> Principal | None:
        digest = self._sessions.digest(session)
        if digest is not None and not self._token_cache.loaded:
            raise self._token_cache.failure or STARTING
        return await self._token_cache.find_by_digest(digest) if digest else None

    async def show(self, request: Request) -> Response:
        return self._show(request, request.query_params.get("next", "/"))

    def _show(self, request: Request, following: str, refusal: str = "", status: int = 200) -> Response:
        host = request.headers.get("host", "").encode()
        is_plain = request.scope["scheme"] != "https" and not is_here(host)
        values = {"next": own_path(following), "refusal": refusal, "is_plain": is_plain}
        is_foreign = request.headers.get("sec-fetch-site") == "cross-site"
        return self._pages.render(request, None, "sign_in", status, **values, is_foreign=is_foreign)

    async def sign_in(self, request: Request) -> Response:
        check_source(request)
        form = await form_of(request)
        following = own_path(form.get("next", "/"))
        try:
            principal = await self._token_cache.find_by_secret(form.get("token", "").encode(), headers_of(request))
        except Unauthorized:
            return self._show(request, following, "this token is unknown, revoked or expired", 401)
        answer = redirect(following)
        if principal.token is not EVERYTHING:
            set_cookie(request, answer, self._sessions.issue(principal.digest), LIFETIME)
        return answer

    async def sign_out(self, request: Request) -> Response:
        check_source(request)
        answer = redirect("/console/sign-in")
        set_cookie(request, answer, "", 0)
        return answer


def set_cookie(request: Request, answer: Response, session: str, seconds: int) -> None:
    answer.set_cookie(
        cookie_name(request),
        session,
        max_age=seconds,
        path="/",
        secure=request.scope["scheme"] == "https",
        httponly=True,
        samesite="strict",
    )


def cookie_name(request: Request) -> str:
    """The name of the cookie. It holds the port, since browsers send cookies to all ports of a host."""
    port = request.headers.get("host", "").rpartition(":")[2]
    own = f"allocator-{port}" if port.isdecimal() else "allocator"
    return f"__Host-{own}" if request.scope["scheme"] == "https" else own


async def form_of(request: Request) -> dict[str, str]:
    """Read the fields of a form. It is read before a token is checked, so its size is bounded."""
    raw = await body_within(request, MAX_FORM)
    return {name: value.strip() for name, value in parse_qsl(raw.decode("latin-1"))}


def without_foreign(headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Remove credentials for a proxy in front of us, such as Basic."""
    scheme = headers.get(b"authorization", b"").partition(b" ")[0]
    return headers if is_bearer(scheme) else {name: headers[name] for name in headers if name != b"authorization"}


def check_source(request: Request) -> None:
    if not is_from_us(request.headers):
        raise AccessDenied("a change must come from a page of this console; reload the page and try again")


def is_from_us(headers: Mapping[str, str]) -> bool:
    """Tell whether the browser names one of our own pages as the sender."""
    site = headers.get("sec-fetch-site")
    if site is not None:  # browsers send it over https and to localhost
        return site == "same-origin"
    return headers.get("origin", "").partition("://")[2] == headers.get("host", "") != ""


def own_path(given: str) -> str:
    """The path to open after the sign-in; "/" instead of one that a browser would take for another host."""
    is_ours = given.startswith("/") and not given.startswith("//") and "\\" not in given and given.isprintable()
    return given if is_ours else "/"
