"""Who is asking: from the header of a request to what may be done.

The tokens are read again every few seconds, and while the database is away those that were read last stay good: ids
go on. A new token is good at once, since one that is not known is looked for, and a revoked one for some seconds more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from time import monotonic
from typing import TYPE_CHECKING, Any

from allocator.errors import AccessDenied, AllocatorError, DatabaseUnavailable, TooManyRequests
from allocator.rules.token import ANONYMOUS, DRAW, PREFIX, SCHEMES, VERBS, Token
from allocator.service.log_config import NUMBER
from allocator.service.problems import Unauthorized
from allocator.service.rate_limits import Rate

if TYPE_CHECKING:
    from allocator.service.sources import Source

log = logging.getLogger("allocator.service")

REFRESH = 2.0
AT_ONCE = 1.0
"""Seconds between two readings of the tokens; the short one for a token that is not known, or a database away."""

EVERYTHING = Token(0, "open", "", VERBS, ("*",), None, None, datetime.fromtimestamp(0, UTC), None, SCHEMES)

OURS = PREFIX.encode()
NONE_YET = (
    "no token was made yet; make one, with: allocator tokens create NAME; or serve the service's own machine alone, "
    "with: allocator serve --open"
)
HOW = "it is sent as Authorization: Bearer allocator_SECRET, by clients as token= or ALLOCATOR_TOKEN"

RARE_RATE, RARE_BURST = 1.0, 20
"""Nodes and workers a second and token: a million node numbers then last for twelve days of an attack."""

LOCAL = (b"localhost", b"127.0.0.1", b"[::1]")
"""What a browser on this machine may call us; any other name may be a foreign page's, pointed here."""
OF_ITSELF = (b"none", b"same-origin")
HANDED_ON = frozenset(
    (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip")
)
"""A proxy on this machine says so by one of these, and who stands behind it may be anywhere."""


class Grant:
    """One token, as it is used: `ready` maps the path of a hot route to what it gives, once that was allowed.

    Each of the workers may use its share of the token's rates.
    """

    __slots__ = ("_ids", "_rare", "_requests", "digest", "expires", "limited", "ready", "token")

    def __init__(self, token: Token, workers: int = 1) -> None:
        self.token = token
        self.digest = bytes.fromhex(token.digest)
        self.expires = token.expires_at is not None
        self._ids = Rate(token.ids_rate / workers) if token.ids_rate else None
        self._requests = Rate(token.requests_rate / workers) if token.requests_rate else None
        self._rare = Rate(RARE_RATE, RARE_BURST / RARE_RATE)
        self.limited = self._ids is not None or self._requests is not None
        self.ready: dict[str, Source] = {}

    def check(self, verb: str, name: str | None) -> None:
        if not self.token.may(verb, name):
            raise self._refused(verb if name is None else f"{verb} {name!r}")

    def _refused(self, what: str) -> AccessDenied:
        if self.token.name == ANONYMOUS:
            return Unauthorized(f"without a token one may not {what}; {HOW}")
        return AccessDenied(f"this token may not {what}")

    def let_in(self, verb: str | None, name: str | None, scheme: str | None = None) -> None:
        """What every request begins with: it counts, also where it is refused then."""
        self.admit()
        if scheme is not None and not self.token.may_draw(scheme):
            raise self._refused(f"{DRAW} the scheme {scheme!r}")
        if scheme is None and verb is not None:
            self.check(verb, name)

    def wait(self) -> float:
        """Count a request; or, uncounted, for how many seconds it must wait."""
        wait = max(self._ids.wait() if self._ids else 0.0, self._requests.wait() if self._requests else 0.0)
        if self._requests and not wait:
            self._requests.use()
        return wait

    def admit(self) -> None:
        """Count a request; raise `TooManyRequests` where the token's rates do not let it pass now."""
        if wait := self.wait():
            raise used_up(wait)

    def charge(self, ids: int) -> None:
        """Count ids that were given."""
        if self._ids:
            self._ids.use(ids)

    def admit_rare(self) -> None:
        """As `admit`, for what there is little of: nodes and workers. Counted by each process, for every token."""
        if wait := self._rare.wait():
            raise used_up(wait)
        self._rare.use()


def used_up(wait: float) -> TooManyRequests:
    return TooManyRequests(f"the rate of this token is used up; try again in {wait:.1f} seconds", wait)


class Book:
    """All tokens, by the digests of their secrets. Used by one event loop."""

    def __init__(self, load: Callable[[], tuple[list[Token], bool]], workers: int, is_open: bool) -> None:
        self._load = load
        self._workers = workers
        self._open = Grant(EVERYTHING) if is_open else None
        self._were_made = False
        self._grants: dict[bytes, Grant] = {}
        self._anonymous: Grant | None = None
        self._lock = asyncio.Lock()
        self._tried_at = -REFRESH
        self.failure: AllocatorError | None = DatabaseUnavailable("the tokens were not read yet")
        self.loaded = False

    def quick(self, headers: Mapping[bytes, bytes]) -> Grant | None:
        """Whose request this is, if that is known without waiting."""
        if self._open:
            return self._open if self.loaded and is_local(headers) else None
        value = headers.get(b"authorization")
        if value is None:
            grant = self._anonymous
            return grant if grant is None or grant.token.is_valid(datetime.now(UTC)) else None
        scheme, _, secret = value.partition(b" ")
        return self._with_digest(sha256(secret).digest()) if is_bearer(scheme) else None

    def _with_digest(self, digest: bytes) -> Grant | None:
        """The token with this digest, while it is valid."""
        grant = self._grants.get(digest)
        if grant is None or not compare_digest(grant.digest, digest):
            return None
        return grant if not grant.expires or grant.token.is_valid(datetime.now(UTC)) else None

    async def of_digest(self, digest: bytes) -> Grant | None:
        """As `quick`; one that is not known is looked for, since another worker may have read it before us."""
        if digest not in self._grants:
            await self._read_since(monotonic())
        return self._with_digest(digest)

    async def of(self, headers: Mapping[bytes, bytes]) -> Grant:
        """Whose request this is. Raises what a caller without a right to anything is told."""
        secret = headers.get(b"authorization", b"").partition(b" ")[2]
        found = self.quick(headers)
        if found is None and (secret.startswith(OURS) or not self.loaded):
            await self._read_since(monotonic())
            found = self.quick(headers)
        if found is None and not self.loaded:
            raise DatabaseUnavailable("the tokens could not be read yet")
        if found is None:
            raise Unauthorized(f"a valid token is needed; {HOW}" if self._were_made or self._open else NONE_YET)
        return found

    async def of_secret(self, secret: bytes, headers: Mapping[bytes, bytes]) -> Grant:
        """As `of`, for a secret that is sent elsewhere than it should be."""
        return await self.of({**headers, b"authorization": b"Bearer " + secret})

    # -- reading

    async def keep_fresh(self) -> None:
        while True:
            try:
                await self.refresh()
            except Exception as error:  # as when the system has no more threads: what was read last would stay good
                log.exception("the tokens could not be read")
                self.failure = DatabaseUnavailable(f"the tokens could not be read: {error}")
            await asyncio.sleep(AT_ONCE if self.failure else REFRESH)

    async def refresh(self) -> None:
        async with self._lock:
            await self._read()

    async def _read_since(self, moment: float) -> None:
        """Once a second at most, however many ask: who guesses tokens waits, and the database does not notice."""
        async with self._lock:
            if self._tried_at < moment:
                await asyncio.sleep(max(0.0, self._tried_at + AT_ONCE - monotonic()))
                await self._read()

    async def _read(self) -> None:
        self._tried_at = monotonic()
        try:
            tokens, were_made = await asyncio.to_thread(self._load)
        except AllocatorError as error:
            if self.loaded and self.failure is None:
                log.warning("the tokens could not be read, and those that were read last stay good: %s", error)
            self.failure = error
            return
        self._take(tokens)
        self._were_made = were_made
        if were_made:
            self._open = None  # for good: whoever revokes the last token does not mean to let everybody in
        self.failure, self.loaded = None, True

    def _take(self, tokens: list[Token]) -> None:
        grants = {}
        for token in tokens:
            fresh = Grant(token, self._workers)
            known = self._grants.get(fresh.digest)
            grants[fresh.digest] = known if known and known.token == token else fresh
        self._grants = grants
        now = datetime.now(UTC)
        public = [one for one in grants.values() if one.token.name == ANONYMOUS and one.token.is_valid(now)]
        self._anonymous = public[-1] if public else None


def is_bearer(scheme: bytes) -> bool:
    return scheme == b"Bearer" or scheme.lower() == b"bearer"


def is_local(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request may come from this machine, and from no page of the web that a browser here has opened."""
    if headers.get(b"sec-fetch-site", b"none") not in OF_ITSELF or not HANDED_ON.isdisjoint(headers):
        return False
    origin = headers.get(b"origin")
    return is_here(headers.get(b"host", b"")) and (origin is None or is_here(origin.partition(b"://")[2]))


def is_here(host: bytes) -> bool:
    return host in LOCAL or host.rpartition(b":")[0] in LOCAL


def mark(scope: MutableMapping[str, Any], grant: Grant) -> None:
    """Note the number of the token, for the log."""
    scope[NUMBER] = None if grant.token is EVERYTHING else grant.token.number
