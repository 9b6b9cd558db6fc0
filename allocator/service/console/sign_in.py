"""Who uses the console: sessions, signing in and out, and whether a change comes from one of our own pages.

A browser sends no bearer token by itself. So the sign-in page takes a token once and answers with a cookie, signed by
`itsdangerous`: the digest of the token, a nonce, when it was made, HMAC-SHA256 of these. Each start of the service
draws the key and hands it to its workers, so that all of them accept the cookie, and no other service does.

Whoever steals the cookie has a session of this console for `LIFETIME` seconds at most. It draws no id, since the API
accepts bearer tokens alone, and it ends when the token is revoked. docs/console.md lists what is guarded against.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_urlsafe
from time import time
from urllib.parse import parse_qsl

from itsdangerous import BadSignature, Signer, TimestampSigner
from starlette.requests import Request
from starlette.responses import Response

from allocator.errors import AccessDenied, DatabaseUnavailable, InvalidSetting
from allocator.rules.token import ADMINISTER, ANONYMOUS, DRAW, READ, Token
from allocator.service.auth import EVERYTHING, Book, Grant, is_bearer, is_here, mark
from allocator.service.console.rendering import Pages, redirect
from allocator.service.dispatch import body_within, headers_of
from allocator.service.parameters import MAX_FORM
from allocator.service.problems import Unauthorized

LIFETIME = 8 * 3600
"""Seconds of a session, whatever is done in it."""
ALL_TAGS = "*"
MAX_FIELDS = 30


class Sessions:
    """Cookies and form proofs under one key."""

    def __init__(self, key: bytes) -> None:
        self._cookies = TimestampSigner(key, salt=b"allocator session", digest_method=sha256)
        self._proofs = Signer(key, salt=b"allocator form", digest_method=sha256)

    def issue(self, digest: bytes) -> str:
        """The cookie of a new session. The nonce gives two sessions of one token different proofs."""
        return self._cookies.sign(f"{digest.hex()}.{token_urlsafe(16)}").decode()

    def digest(self, cookie: str) -> bytes | None:
        """The digest of the token that the session was made with, while it lasts."""
        try:
            value, issued = self._cookies.unsign(cookie.encode(errors="replace"), return_timestamp=True)
        except BadSignature:
            return None
        # Not by `max_age`, which refuses a session of the future too: a clock that is set back would sign people out.
        is_over = time() >= issued.timestamp() + LIFETIME
        return None if is_over else bytes.fromhex(value.decode().partition(".")[0])

    def proof(self, cookie: str) -> str:
        """The hidden field of a form, good for this session alone."""
        return self._proofs.get_signature(cookie).decode()

    def is_proof(self, given: str, cookie: str) -> bool:
        return self._proofs.verify_signature(cookie, given.encode(errors="replace"))


@dataclass(frozen=True, slots=True)
class User:
    """`session` is the cookie, empty where there is none; `proof` is what a form must hold."""

    grant: Grant
    session: str
    proof: str

    @property
    def token(self) -> Token:
        return self.grant.token

    @property
    def name(self) -> str:
        if self.token is EVERYTHING:
            return "open to this machine"
        return "without a token" if self.token.name == ANONYMOUS else self.token.name

    @property
    def sees_all(self) -> bool:
        return READ in self.token.verbs and ALL_TAGS in self.token.tags

    @property
    def is_operator(self) -> bool:
        """May see what names hosts and databases: shards, nodes, leases, and the doctor's findings."""
        return self.sees_all and ADMINISTER in self.token.verbs

    @property
    def may_create(self) -> bool:
        return ADMINISTER in self.token.verbs

    def may(self, verb: str, tag: str) -> bool:
        return self.token.may(verb, tag)

    def sees(self, tag: str) -> bool:
        return self.may(READ, tag)

    def check_operator(self) -> None:
        if not self.is_operator:
            raise AccessDenied("this is for tokens that may read and administer all tags")

    def check_sees(self, tag: str) -> None:
        """As in the API: who draws from a tag may know its settings. Its rates and history are for `sees` alone."""
        if not self.sees(tag):
            self.grant.check(DRAW, tag)


class SignIn:
    """Finds the user of a request, and serves the page to sign in."""

    def __init__(self, book: Book, sessions: Sessions, pages: Pages) -> None:
        self._book = book
        self._sessions = sessions
        self._pages = pages

    async def user(self, request: Request) -> User:
        """Raises `Unauthorized` where signing in would help. Every request counts for the rate of its token."""
        session, headers = request.cookies.get(cookie_name(request), ""), without_foreign(headers_of(request))
        grant = await self._of_session(session) if b"authorization" not in headers else None
        if grant is None:
            session, grant = "", await self._book.of(headers)
        mark(request.scope, grant)
        grant.admit()
        return User(grant, session, self._sessions.proof(session))

    async def _of_session(self, session: str) -> Grant | None:
        digest = self._sessions.digest(session)
        if digest is not None and not self._book.loaded:
            raise DatabaseUnavailable("the tokens could not be read yet")
        return await self._book.of_digest(digest) if digest else None

    async def form(self, request: Request) -> tuple[User, dict[str, str]]:
        """The user and the fields of a POST, which must come from one of our own pages."""
        form = await form_of(request)
        check_source(request)
        user = await self.user(request)
        if not self._sessions.is_proof(form.get("proof", ""), user.session):
            raise AccessDenied("the form is from another session; open the page again, and send it from there")
        return user, form

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
            grant = await self._book.of_secret(form.get("token", "").encode(), headers_of(request))
        except Unauthorized:
            return self._show(request, following, "this token is not known here, was revoked or has expired", 401)
        grant.admit()
        answer = redirect(following)
        if grant.token is not EVERYTHING:
            set_cookie(request, answer, self._sessions.issue(grant.digest), LIFETIME)
        return answer

    async def sign_out(self, request: Request) -> Response:
        await self.form(request)
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
    """With the port, since browsers send cookies to all ports of a host; over https with the prefix for one host."""
    port = request.headers.get("host", "").rpartition(":")[2]
    own = f"allocator-{port}" if port.isdecimal() else "allocator"
    return f"__Host-{own}" if request.scope["scheme"] == "https" else own


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form; the last one of a name counts."""
    raw = await body_within(request, MAX_FORM)
    try:
        pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise InvalidSetting(f"a form has at most {MAX_FIELDS} fields") from None
    return {name: value.strip() for name, value in pairs}


def without_foreign(headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Without credentials for a proxy before us, as Basic: they are no token of ours."""
    scheme = headers.get(b"authorization", b"").partition(b" ")[0]
    return headers if is_bearer(scheme) else {name: headers[name] for name in headers if name != b"authorization"}


def check_source(request: Request) -> None:
    if not is_from_us(request.headers):
        raise AccessDenied("a change must come from a page of this console; reload the page, and try again")


def is_from_us(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that one of our own pages sent this."""
    site = headers.get("sec-fetch-site")
    if site is not None:  # sent over https and on this machine
        return site == "same-origin"
    return headers.get("origin", "").partition("://")[2] == headers.get("host", "") != ""


def own_path(given: str) -> str:
    """Where to go after signing in: a path of ours, and nothing that a browser takes for another host."""
    is_ours = given.startswith("/") and not given.startswith("//") and "\\" not in given and given.isprintable()
    return given if is_ours else "/"
