"""The servers of a service, asked over HTTP: each call asks one, and the next one when that cannot serve.

The one that answered last is asked first. A request whose answer is lost is asked again and brings other ids: what it
had claimed is burnt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import allocator.errors
from allocator.errors import (
    AccessDenied,
    AllocatorClosed,
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    InvalidArgument,
    InvalidDatabase,
    InvalidSetting,
    SchemaDamaged,
    SchemaOutOfDate,
    ShardMisconfigured,
)
from allocator.runtime.forks import catch_up

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

T = TypeVar("T")

CONNECTIONS = 8
PIECE = 65_536
MAX_SHOWN = 1000
"""Characters of what a server says that stand in a message."""
PART_OF_TIMEOUT = 0.9
"""For all servers together: the caller should learn why it failed before it gives up."""

OF_THE_SERVER = (AllocatorClosed, DatabaseRefused, SchemaDamaged, SchemaOutOfDate, ShardMisconfigured)
"""Troubles of one server, for which another one is tried, and the same one again later."""

abandoned: list[object] = []
"""Connections inherited by a fork belong to the parent: kept to the end, so that nothing here closes them."""


def addresses(given: object) -> list[str]:
    """The servers that an argument names; none when it is about a database."""
    is_list = type(given) in {list, tuple, set, frozenset}  # and not a URL of SQLAlchemy, which is a tuple too
    several: list[object] = list(given) if is_list else [given]  # type: ignore[call-overload]
    named = [one for one in several if isinstance(one, str) and one.partition("://")[0].lower() in {"http", "https"}]
    if not is_list and not named:
        return []
    if len(named) < len(several) or not several:
        raise InvalidDatabase(
            "a list in first place holds addresses that begin with https:// or http://, and nothing else; several "
            "databases are given as shards="
        )
    return [address_of(one) for one in named]


def address_of(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise InvalidDatabase("an address looks like https://ids.example.org or http://localhost:8000, without a query")
    if parts.username is not None or parts.password is not None:
        raise InvalidDatabase("an address holds no user and no password; give the service's token as token=")
    return text.rstrip("/")


class Servers:
    """Safe to use from several threads. Nothing is opened before the first call."""

    def __init__(self, addresses: list[str], token: str | None, timeout: float) -> None:
        if token is not None and (not isinstance(token, str) or not token.isascii() or not token.isprintable()):
            raise InvalidSetting("a token is text of printable ASCII characters")
        self._addresses = addresses
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = timeout
        self._closed = False
        self._first = 0
        self._pool = new_pool(len(addresses))

    @property
    def shown(self) -> str:
        return ", ".join(self._addresses)

    def ask(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str] | None = None,
        *,
        read: Callable[[Any], T],
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> T:
        """What `read` makes of the JSON of the first server that answers; raises what the last one refused with.

        An answer that `read` refuses is dropped as a whole, and the next server is asked.
        """
        end = monotonic() + PART_OF_TIMEOUT * (self._timeout if timeout is None else timeout)
        query = "&".join(f"{name}={quote(value)}" for name, value in (fields or {}).items())
        target = f"{path}?{query}" if query else path
        order = [*range(self._first, len(self._addresses)), *range(self._first)]
        error: AllocatorError = DatabaseUnavailable(f"{self.shown} was not asked in time")
        for tried, number in enumerate(order):
            left = end - monotonic()
            if left <= 0:
                break
            try:
                seconds = left / (len(order) - tried)
                answer = checked(read, self._send(number, method, target, body, headers or {}, seconds))
            except (DatabaseUnavailable, DatabaseRefused) as its_own:
                error = its_own
                continue
            except AllocatorError:
                self._first = number  # it answers, and another one would say the same
                raise
            self._first = number
            return answer
        raise error

    def _send(
        self,
        number: int,
        method: str,
        target: str,
        body: Mapping[str, object] | None,
        headers: Mapping[str, str],
        seconds: float,
    ) -> Any:
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError, SSLError

        catch_up()
        if self._closed:
            raise AllocatorClosed
        server = self._addresses[number]
        data = None if body is None else json.dumps(body).encode()
        sent = {**self._headers, **headers, **({"Content-Type": "application/json"} if data else {})}
        try:
            answer = self._pool.request(
                method,
                server + target,
                body=data,
                headers=sent,
                timeout=Timeout(total=seconds),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            content = content_of(answer)
        except SSLError as error:
            raise DatabaseRefused(
                f"the certificate of {server} is not trusted, or it speaks no TLS: {reason(error)}; for a certificate "
                "of your own, let the variable SSL_CERT_FILE name its file"
            ) from error
        except (HTTPError, OSError) as error:
            raise DatabaseUnavailable(f"{server} did not answer: {reason(error)}") from error
        if answer.status not in {200, 201}:
            raise refusal(server, answer.status, content)
        return parsed(server, answer.status, content)

    def close(self) -> None:
        self._closed = True
        self._pool.clear()

    def abandon(self) -> None:
        """After a fork, in the child."""
        abandoned.append(self._pool)
        self._pool = new_pool(len(self._addresses))


def new_pool(servers: int) -> PoolManager:
    try:
        from allocator.remote import deadline
    except ImportError as error:
        raise InvalidDatabase(
            "a service is asked with urllib3, which is not installed; pip install 'segment-allocator[client]'"
        ) from error
    return deadline.new_pool(servers, CONNECTIONS)


def content_of(answer: BaseHTTPResponse) -> bytes:
    """The body, in pieces: a length that the server only claims reserves no memory."""
    content = bytearray()
    while piece := answer.read1(PIECE):
        content += piece
    answer.release_conn()
    return bytes(content)


def checked(read: Callable[[Any], T], answer: Any) -> T:
    """What `read` makes of an answer; one that is not as agreed is a server of another kind."""
    try:
        return read(answer)
    except (InvalidArgument, AttributeError, KeyError, TypeError) as error:
        raise DatabaseRefused(f"the server's answer is not that of this service: {printable(error)}") from error


def parsed(server: str, status: int, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DatabaseUnavailable(f"{server} answered {status} without JSON: is it this service?") from error


def refusal(server: str, status: int, content: bytes) -> AllocatorError:
    """The error that the service raised, as its problem+json tells it."""
    try:
        problem = json.loads(content)
        name, detail = str(problem["error"]), printable(problem["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        if status in {401, 403}:
            return AccessDenied(f"{server} answered {status}")
        return DatabaseUnavailable(f"{server} answered {status}, and not as this service does")
    kind = getattr(allocator.errors, name, None)
    if kind in OF_THE_SERVER or (kind is None and status == 503):
        return DatabaseUnavailable(f"{server} cannot serve now: {detail}")
    if isinstance(kind, type) and issubclass(kind, AllocatorError) and kind is not AllocatorError:
        return kind(detail)
    return DatabaseRefused(f"{server} answered {status}: {detail}")


def reason(error: BaseException) -> str:
    """The last cause, which says it in the fewest words."""
    inner = getattr(error, "reason", None) or error.__cause__ or error
    return f"{type(inner).__name__}: {printable(str(inner).rpartition(': ')[2])}"


def printable(value: object) -> str:
    """What a server says, for messages and logs: of a bounded length, without control characters."""
    text = str(value)[:MAX_SHOWN]
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
