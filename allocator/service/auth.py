"""Authentication and authorization: from the Authorization header to the rights of its token.

A process reads the tokens every second, on a connection of their own, which no flood of requests delays. While they
cannot be read, the last ones stay valid, so that ids are served; the log says why, and no revocation is noticed. A
request with an unknown token waits for the next read, which may find it; so guesses are slow.
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
from allocator.schemes.token import ALL, PREFIX, VERBS, Token
from allocator.service.error_responses import SOON, HttpRefusal, Unauthorized

if TYPE_CHECKING:
    from allocator.service.served_ids import Source

log = logging.getLogger("allocator.service")

REFRESH = 1.0
"""Seconds between two reads of the tokens. A revoked token works until the end of the next read: two seconds at most,
where a read takes less than one. A new token works after it."""

EVERYTHING = Token(0, "open", "", VERBS, (ALL,), datetime.fromtimestamp(0, UTC))

SECRET_PREFIX = PREFIX.encode()
NONE_EXISTS = (
    "no token exists; create one with: allocator tokens create NAME; or serve only this machine, without tokens, "
    "with: allocator serve --open"
)
NOT_HERE = (
    "until a token exists, this service serves this machine alone: ask it by the name localhost, and not through "
    "a proxy or from another site's page; or create a token with: allocator tokens create NAME"
)
STARTING = DatabaseUnavailable("the service is starting and has not asked its database yet; retry")
HOW = "send it as Authorization: Bearer allocator_SECRET (clients: token= or ALLOCATOR_TOKEN)"

RARE_SECONDS, RARE_BURST = 1.0, 20
"""A token gets a node or worker in so many seconds, and so many at once: a million node numbers take twelve days."""

PAUSE, WORK = 0.001, 0.00025
"""Seconds in which others get ids, after so many of requests of one token that wait in line."""
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

    __slots__ = ("_full_at", "_rested_at", "_share", "_turn", "digest", "hot_sources", "is_revoked", "token")

    def __init__(self, token: Token, share: int = SHARE) -> None:
        self.token = token
        self.digest = bytes.fromhex(token.digest)
        self.is_revoked = False
        self._full_at = 0.0
        self._share = asyncio.Semaphore(share)
        self._turn = asyncio.Lock()
        self._rested_at = 0.0
        self.hot_sources: dict[str, Source] = {}

    def check(self, verb: str, name: str | None) -> None:
        if not self.token.may(verb, name):
            raise AccessDenied(f"this token may not {verb} {'tags' if name is None else repr(name)}")

    def admit_rare(self, now: float) -> None:
        """Count a request for a node or worker, whose numbers are scarce. Each process limits every token.

        By the generic cell rate algorithm: its whole state is the time when the allowance will be full again.
        """
        if (wait := self._full_at - now - RARE_BURST * RARE_SECONDS) > 0:
            raise TooManyRequests(
                f"this token has used its rate of node and worker numbers; retry in {wait:.1f} seconds", wait
            )
        self._full_at = max(self._full_at, now) + RARE_SECONDS

    async def take_turn(self) -> None:
        """Wait until this token's requests before have begun; if one of them waits, now and then for `PAUSE` seconds.

        For a request that takes longer than an id. Without it one token with a thousand connections has a thousand
        answers between two of another's: the server's threads hand over a request only while this one rests.
        """
        is_crowded = self._turn.locked()
        async with self._turn:
            rests = is_crowded and monotonic() > self._rested_at + WORK
            await asyncio.sleep(PAUSE if rests else 0.0)
            if rests:
                self._rested_at = monotonic()

    @asynccontextmanager
    async def connection_slot(self, end: float) -> AsyncIterator[None]:
        """Hold one of the token's share of the connections. Raises `HttpRefusal` at this time, or `Unauthorized`."""
        try:
            async with asyncio.timeout(end - monotonic()):
                await self._share.acquire()
        except TimeoutError:
            late = "too many requests of this token wait for the database; retry"
            raise HttpRefusal(503, late, retry_after=str(SOON)) from None
        try:
            if self.is_revoked:
                raise Unauthorized("this token was revoked", was_sent=True)
            yield
        finally:
            self._share.release()


class TokenCache:
    """All tokens, by the digests of their secrets. Used by one event loop.

    share: as `SHARE`, for all databases together.
    timeout: seconds that a request with an unknown token may wait.
    """

    def __init__(
        self,
        load: Callable[[], tuple[list[Token], bool]],
        is_open: bool,
        share: int = SHARE,
        timeout: float = 5.0,
    ) -> None:
        self._timeout = timeout
        self._load = load
        self._share = share
        self._open = Principal(EVERYTHING, share) if is_open else None
        self._were_made = False
        self._principals: dict[bytes, Principal] = {}
        self._ended: dict[bytes, int] = {}
        """The numbers of the tokens that were revoked since this process began, by their digests, for the log."""
        self._has_read = asyncio.Event()
        """Set at the end of the read under way, and then replaced."""
        self._read_at = -REFRESH
        """When the last read began that has ended."""
        self.failure: AllocatorError | None = STARTING
        self.loaded = False

    def find_in_memory(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Find the valid token of a request in memory."""
        if self._open:
            return self._open if self.loaded and is_local(headers) else None
        digest = sha256(secret_in(headers)).digest()
        principal = self._principals.get(digest)
        if principal is None or not compare_digest(principal.digest, digest):
            return None
        token = principal.token
        return principal if token.expires_at is None or token.is_valid(datetime.now(UTC)) else None

    @property
    def is_open(self) -> bool:
        """Whether this machine needs no token."""
        return self._open is not None

    async def find(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Find the token of a request.

        Raises `Unauthorized` if it has none that is valid, and the cause if the tokens cannot be read, one of which it
        may be.
        """
        principal = self.find_in_memory(headers)
        if principal is None and not self.refusal(headers):
            await self._wait_for_read()
            principal = self.find_in_memory(headers)
        if principal is None:
            raise self.refusal(headers) or (self.failure.again() if self.failure else self._unauthorized(headers))
        return principal

    def refusal(self, headers: Mapping[bytes, bytes]) -> Unauthorized | None:
        """The refusal of a request without a valid token; None if reading the tokens again may find its token."""
        secret = secret_in(headers)
        is_new = secret.startswith(SECRET_PREFIX) and not self._end_of(secret)
        return None if is_new or not self.loaded else self._unauthorized(headers)

    def _unauthorized(self, headers: Mapping[bytes, bytes]) -> Unauthorized:
        if self._open:
            return Unauthorized(NOT_HERE)
        secret = secret_in(headers)
        if not self._were_made:
            return Unauthorized(NONE_EXISTS, secret != b"")
        unknown = "the token is unknown, or was revoked before this service started"
        reason = self._end_of(secret) or unknown if secret else "no token was sent"
        return Unauthorized(f"this request needs a valid token; {HOW}", secret != b"", reason)

    def _end_of(self, secret: bytes) -> str:
        """How a token, which is not valid, has ended, for the operator; empty if it is unknown."""
        digest = sha256(secret).digest()
        if (principal := self._principals.get(digest)) and principal.token.expires_at:
            return f"token {principal.token.number} expired at {principal.token.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        if digest in self._ended:
            return f"token {self._ended[digest]} was revoked"
        return ""

    async def _wait_for_read(self) -> None:
        """Wait for the end of a read that begins later: a token made during the read under way may be missing in it."""
        now = monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                while self._read_at < now:
                    await self._has_read.wait()
        except TimeoutError:
            late = f"the tokens could not be read within {self._timeout:g} seconds"
            raise DatabaseUnavailable(late) from None

    async def refresh(self) -> None:
        """Read the tokens, and note why they cannot be read."""
        began = monotonic()
        await self._read()
        self._read_at = began
        self._has_read.set()
        self._has_read = asyncio.Event()

    async def _read(self) -> None:
        try:
            tokens, were_made = await asyncio.to_thread(self._load)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            self._note(error if isinstance(error, AllocatorError) else DatabaseUnavailable(said))
            return
        before, self._principals = self._principals, {}
        for token in tokens:
            fresh = Principal(token, self._share)
            known = before.get(fresh.digest)
            # An unchanged token keeps its principal, which knows how much of its rate is used.
            self._principals[fresh.digest] = known if known and known.token == token else fresh
        for digest in before.keys() - self._principals.keys():
            before[digest].is_revoked = True
            self._ended[digest] = before[digest].token.number
        self._were_made = were_made
        if were_made:
            self._open = None  # for ever: an operator who revokes the last token does not want to open the service
        if self.failure not in {None, STARTING}:
            log.info("the database answers again, and the tokens are read")
        self.failure, self.loaded = None, True

    def _note(self, failure: AllocatorError) -> None:
        """Log why the tokens cannot be read, each cause once."""
        if str(failure) != str(self.failure):
            passes = isinstance(failure, DatabaseUnavailable)
            kept = "the last ones stay valid" if self.loaded else "requests with a token are refused"
            log.log(logging.WARNING if passes else logging.ERROR, "cannot read the tokens; %s: %s", kept, failure)
        self.failure = failure


def secret_in(headers: Mapping[bytes, bytes]) -> bytes:
    """The secret of the token that a request sends; empty without one."""
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    return secret if is_bearer(scheme) else b""


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
