"""Authentication and authorization: from the Authorization header to the rights of its token.

A process reads the tokens every few seconds, on a connection of their own, which no flood of requests delays. While the
database is away, the last ones stay valid and ids are served. While it answers, but the tokens cannot be read, they
stay valid for `TRUSTED` seconds.
A new token works at once, because an unknown token triggers a read. A revoked token works for a few more seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from time import monotonic
from typing import TYPE_CHECKING

from allocator.errors import AccessDenied, AllocatorError, DatabaseUnavailable, TooManyRequests
from allocator.rules.token import ALL, PREFIX, VERBS, Token
from allocator.service.error_responses import Busy, Unauthorized
from allocator.service.log_config import NUMBER
from allocator.service.rate_limits import RateLimit

if TYPE_CHECKING:
    from starlette.types import Scope

    from allocator.service.id_sources import Source

log = logging.getLogger("allocator.service")

REFRESH, AT_ONCE = 1.5, 1.0
"""Seconds between two reads of the tokens; the shorter one after an unknown token or a failed read. A revoked token
works until the end of the next read, two seconds at most where a read takes a quarter of a second."""

TRUSTED = 10.0
"""Seconds until tokens that cannot be read, although the database answers, are refused: one may have been revoked."""

EVERYTHING = Token(0, "open", "", VERBS, (ALL,), datetime.fromtimestamp(0, UTC))

SECRET_PREFIX = PREFIX.encode()
NONE_EXISTS = (
    "no token exists; create one with: allocator tokens create NAME; or serve only this machine, without tokens, "
    "with: allocator serve --open"
)
NOT_HERE = (
    "until a token exists, this service serves this machine alone: ask it by the name localhost, also on a Unix "
    "socket, and not through a proxy or from another site's page; or create a token with: allocator tokens create NAME"
)
NOT_READ = f"the service has not read its tokens, or could not for {TRUSTED:g} seconds; retry, or see its log"
STARTING = DatabaseUnavailable("the service is starting and has not asked its database yet; retry")
HOW = "send it as Authorization: Bearer allocator_SECRET (clients: token= or ALLOCATOR_TOKEN)"

RARE_RATE, RARE_BURST = 1.0, 20
"""Nodes and workers per second and token: an attacker needs twelve days for a million node numbers."""

SHARE = 3
"""Tickets, nodes and leases that one token may ask the database for at once. Of its four connections one is left for
others. Claims need no share: those of one tag use one connection, however many ask."""

LOCAL = (b"localhost", b"127.0.0.1", b"[::1]")
"""Accepted values of the Host header. Any other name may belong to a website whose DNS points here (DNS rebinding)."""
OWN_SITES = (b"none", b"same-origin")
"""Accepted values of Sec-Fetch-Site: typed by the user, or sent by one of our own pages."""
PROXY_HEADERS = frozenset(
    b"forwarded via forwarded-for x-forwarded x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-prefix"
    b" x-forwarded-proto x-forwarded-scheme x-forwarded-server x-forwarded-uri x-original-forwarded-for x-original-host"
    b" x-original-url x-real-ip x-client-ip x-cluster-client-ip x-envoy-external-address x-scheme x-azure-clientip"
    b" x-amzn-trace-id true-client-ip cf-connecting-ip cf-ray fastly-client-ip".split()
)
"""One of these headers means that a proxy on this machine forwards a client, which may be anywhere."""


class Principal:
    """A token in use, with its rate of nodes and workers in this process.

    hot_sources: maps the path of an allowed hot route to its source of ids. is_revoked: nobody gets a slot any more.
    """

    __slots__ = ("_rare", "_share", "digest", "expires", "hot_sources", "is_revoked", "token")

    def __init__(self, token: Token, share: int = SHARE) -> None:
        self.token = token
        self.digest = bytes.fromhex(token.digest)
        self.expires = token.expires_at is not None
        self.is_revoked = False
        self._rare = RateLimit(RARE_RATE, RARE_BURST / RARE_RATE)
        self._share = asyncio.Semaphore(share)
        self.hot_sources: dict[str, Source] = {}

    def check(self, verb: str, name: str | None) -> None:
        if not self.token.may(verb, name):
            raise AccessDenied(f"this token may not {verb} {'tags' if name is None else repr(name)}")

    def admit_rare(self) -> None:
        """Count a request for a node or worker, whose numbers are scarce. Each process limits every token."""
        if wait := self._rare.wait(monotonic()):
            raise TooManyRequests(
                f"this token has used its rate of node and worker numbers; retry in {wait:.1f} seconds", wait
            )
        self._rare.use(monotonic())

    @asynccontextmanager
    async def connection_slot(self, end: float) -> AsyncIterator[None]:
        """Hold one of the token's share of the connections. Raises `Busy` at this time, or `Unauthorized`."""
        try:
            async with asyncio.timeout(end - monotonic()):
                await self._share.acquire()
        except TimeoutError:
            raise Busy("too many requests with this token wait for the database; retry") from None
        try:
            if self.is_revoked:
                raise Unauthorized("this token was revoked", was_sent=True)
            yield
        finally:
            self._share.release()


class TokenCache:
    """All tokens, by the digests of their secrets. Used by one event loop.

    check_database: raises while the database is away.
    share: as `SHARE`, for all databases together.
    """

    def __init__(
        self,
        load: Callable[[], tuple[list[Token], bool]],
        is_open: bool,
        check_database: Callable[[], object] = lambda: None,
        share: int = SHARE,
    ) -> None:
        self._load = load
        self._check_database = check_database
        self._share = share
        self._open = Principal(EVERYTHING, share) if is_open else None
        self._were_made = False
        self._principals: dict[bytes, Principal] = {}
        self._ended: dict[bytes, int] = {}
        """The numbers of the tokens that were revoked since this process began, by their digests, for the log."""
        self._lock = asyncio.Lock()
        self._tried_at = -REFRESH
        self._trusted_at = monotonic()
        self.failure: AllocatorError | None = STARTING
        self.loaded = False

    def find_in_memory(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Find the token of a request in memory."""
        if self._open:
            return self._open if self.loaded and is_local(headers) else None
        value = headers.get(b"authorization")
        if value is None:
            return None
        scheme, _, secret = value.partition(b" ")
        return self._with_digest(sha256(secret).digest()) if is_bearer(scheme) else None

    def _with_digest(self, digest: bytes) -> Principal | None:
        """Find a valid token in memory."""
        principal = self._principals.get(digest)
        if principal is None or not compare_digest(principal.digest, digest):
            return None
        return principal if not principal.expires or principal.token.is_valid(datetime.now(UTC)) else None

    async def find_by_digest(self, digest: bytes) -> Principal | None:
        """Find a valid token; read the tokens again if it is unknown, since another replica may know it already."""
        if digest not in self._principals:
            await self._read_since(monotonic())
        return self._with_digest(digest)

    async def find(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Find the token of a request. Raises `Unauthorized` if it has none that is valid."""
        principal = self.find_in_memory(headers)
        if principal is None and not self.refusal(headers):
            await self._read_since(monotonic())
            principal = self.find_in_memory(headers)
        if principal is None and not self.loaded:
            raise DatabaseUnavailable(NOT_READ)
        if principal is None:
            raise self._unauthorized(headers)
        return principal

    def refusal(self, headers: Mapping[bytes, bytes]) -> Unauthorized | None:
        """The refusal of a request without a valid token; None if reading the tokens again may find its token."""
        secret = headers.get(b"authorization", b"").partition(b" ")[2]
        return None if secret.startswith(SECRET_PREFIX) or not self.loaded else self._unauthorized(headers)

    def _unauthorized(self, headers: Mapping[bytes, bytes]) -> Unauthorized:
        if self._open:
            return Unauthorized(NOT_HERE)
        scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
        was_sent = is_bearer(scheme) and secret != b""
        if not self._were_made:
            return Unauthorized(NONE_EXISTS, was_sent)
        reason = self._reason(sha256(secret).digest()) if was_sent else "no token was sent"
        return Unauthorized(f"this request needs a valid token; {HOW}", was_sent, reason)

    def _reason(self, digest: bytes) -> str:
        """Why no valid token has this digest, for the operator."""
        if principal := self._principals.get(digest):
            return f"token {principal.token.number} expired at {principal.token.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        if digest in self._ended:
            return f"token {self._ended[digest]} was revoked"
        return "the token is unknown, or was revoked before this service started"

    async def find_by_secret(self, secret: bytes, headers: Mapping[bytes, bytes]) -> Principal:
        """Find the token of a request that sends its secret in a form or query."""
        return await self.find({**headers, b"authorization": b"Bearer " + secret})

    async def keep_fresh(self) -> None:
        while True:
            try:
                await self.refresh()
            except Exception:  # such as no free thread: this loop must go on
                log.exception("cannot refresh the tokens")
            await asyncio.sleep(AT_ONCE if self.failure else REFRESH)

    async def refresh(self) -> None:
        async with self._lock:
            await self._read()

    async def _read_since(self, moment: float) -> None:
        """Read the tokens again if that was not done since `moment`; at most once a second, to slow down guesses."""
        async with self._lock:
            if self._tried_at < moment:
                await asyncio.sleep(max(0.0, self._tried_at + AT_ONCE - monotonic()))
                await self._read()

    async def _read(self) -> None:
        # Before the read, not after it: a token that is made during the read may be missing from the result.
        self._tried_at = monotonic()
        try:
            tokens, were_made = await asyncio.to_thread(self._load)
        except Exception as error:
            if self.loaded and self.failure is None:
                log.warning("cannot read the tokens; the last ones stay valid: %s", error)
            said = f"cannot read the tokens: {type(error).__name__}: {error}"
            self.failure = error if isinstance(error, AllocatorError) else DatabaseUnavailable(said)
            await self._distrust()
            return
        before = self._principals
        self._take(tokens)
        for digest in before.keys() - self._principals.keys():
            before[digest].is_revoked = True
            self._ended[digest] = before[digest].token.number
        self._were_made = were_made
        if were_made:
            self._open = None  # for ever: an operator who revokes the last token does not want to open the service
        if self.failure not in {None, STARTING}:
            log.info("the database answers again, and the tokens are read")
        self.failure, self.loaded, self._trusted_at = None, True, monotonic()

    async def _distrust(self) -> None:
        """Forget the tokens that could not be read for too long, though the database answers."""
        try:
            await asyncio.to_thread(self._check_database)
        except AllocatorError:
            self._trusted_at = monotonic()
            return
        if self.loaded and monotonic() - self._trusted_at >= TRUSTED:
            log.error(
                "the tokens could not be read for %g seconds; all requests are refused: %s", TRUSTED, self.failure
            )
            self._take([])
            self.loaded = False

    def _take(self, tokens: list[Token]) -> None:
        principals = {}
        for token in tokens:
            fresh = Principal(token, self._share)
            known = self._principals.get(fresh.digest)
            # An unchanged token keeps its principal, which knows how much of its rate is used.
            principals[fresh.digest] = known if known and known.token == token else fresh
        self._principals = principals


def is_bearer(scheme: bytes) -> bool:
    return scheme == b"Bearer" or scheme.lower() == b"bearer"


def is_local(headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether a request comes from this machine, and not from a website in a browser on it."""
    if headers.get(b"sec-fetch-site", b"none") not in OWN_SITES or not PROXY_HEADERS.isdisjoint(headers):
        return False
    origin = headers.get(b"origin")
    return is_here(headers.get(b"host", b"")) and (origin is None or is_here(origin.partition(b"://")[2]))


def is_here(host: bytes) -> bool:
    return host in LOCAL or host.rpartition(b":")[0] in LOCAL


def note_token(scope: Scope, principal: Principal) -> None:
    """Store the number of the token in the request, for the log."""
    scope[NUMBER] = None if principal.token is EVERYTHING else principal.token.number
