"""Whose request it is: of a browser with a session, or as the API takes it, with a token, with none, or on an open
service; see `sessions` for what this guards against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from allocator.errors import AccessDenied, DatabaseUnavailable
from allocator.rules.token import ADMINISTER, ANONYMOUS, DRAW, READ, Token
from allocator.service.auth import EVERYTHING, Book, Grant, is_bearer
from allocator.service.caller import mark
from allocator.service.console.sessions import Sessions, cookie_name, is_from_us
from allocator.service.handlers import headers_of

ALL_TAGS = "*"


@dataclass(frozen=True, slots=True)
class Visitor:
    """`session` is what the cookie holds, empty where there is none; `proof` is what a form must hold."""

    grant: Grant
    session: str
    proof: str

    @property
    def token(self) -> Token:
        return self.grant.token

    @property
    def name(self) -> str:
        """Of the token, for a page."""
        if self.token is EVERYTHING:
            return "open to this machine"
        return "without a token" if self.token.name == ANONYMOUS else self.token.name

    @property
    def sees_all(self) -> bool:
        return READ in self.token.verbs and ALL_TAGS in self.token.tags

    @property
    def is_operator(self) -> bool:
        """May see what names hosts and databases: shards, nodes, leases, and what the doctor finds."""
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
        """As the API: who draws from a tag may know its settings. Its rates and history are for `sees` alone."""
        if not self.sees(tag):
            self.grant.check(DRAW, tag)


class Visitors:
    def __init__(self, book: Book, sessions: Sessions) -> None:
        self.book = book
        self.sessions = sessions

    async def of(self, request: Request) -> Visitor:
        """Raises `Unauthorized` where signing in would help. Every request counts for the rate of its token."""
        session, headers = request.cookies.get(name_for(request), ""), without_foreign(headers_of(request))
        grant = await self._of_session(session) if b"authorization" not in headers else None
        if grant is None:
            session, grant = "", await self.book.of(headers)
        mark(request.scope, grant)
        grant.admit()
        return Visitor(grant, session, self.sessions.proof(session))

    async def _of_session(self, session: str) -> Grant | None:
        digest = self.sessions.digest(session)
        if digest is not None and not self.book.loaded:
            raise DatabaseUnavailable("the tokens could not be read yet")
        return await self.book.of_digest(digest) if digest else None

    async def check_change(self, request: Request, form: Mapping[str, str]) -> Visitor:
        """As `of`, for a POST, which must come from a page of ours."""
        check_source(request)
        visitor = await self.of(request)
        if not self.sessions.is_proof(form.get("proof", ""), visitor.session):
            raise AccessDenied("the form is from another session; open the page again, and send it from there")
        return visitor


def without_foreign(headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """What a browser sends for a proxy before us, as Basic, is no token of ours, and does not stand for one."""
    scheme = headers.get(b"authorization", b"").partition(b" ")[0]
    return headers if is_bearer(scheme) else {name: headers[name] for name in headers if name != b"authorization"}


def check_source(request: Request) -> None:
    if not is_from_us(request.headers):
        raise AccessDenied("a change must come from a page of this console, as the browser tells; open it again")


def name_for(request: Request) -> str:
    return cookie_name(request.scope["scheme"], request.headers.get("host", ""))
