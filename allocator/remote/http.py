"""The servers of a service over HTTP, with failover: when one server fails, the call tries the next one.

A call begins with the server that answered last. A retry after a lost response draws other ids; those of the lost
response are skipped.
"""

from __future__ import annotations

import json
import os
import re
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
    TooManyRequests,
)
from allocator.runtime.forks import catch_up

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

T = TypeVar("T")

SCHEMES = {"http", "https", "unix"}
MAX_SOCKET_PATH = 107
"""Bytes that Linux has for the path of a Unix socket."""
CONNECTIONS = 8
"""Each thread of an allocator (`thread_pool.THREADS`) keeps one to each server; urllib3 closes those beyond this."""
CHUNK = 65_536
"""Bytes that one read reserves, whatever Content-Length says."""
MAX_DETAIL = 1000
"""Characters of a server's text that a message repeats; the rest is cut off."""
PART_OF_TIMEOUT = 0.9
"""The requests share this part of the timeout, so that the caller gets their error and not its own timeout."""

FAILOVER_ERRORS = (AllocatorClosed, DatabaseRefused, SchemaDamaged, SchemaOutOfDate, ShardMisconfigured)
"""Errors of a single server, after which the call tries the next one. A later call may try this one again."""

abandoned: list[object] = []
"""Connections that a fork inherited belong to the parent. The references keep the child from closing them."""


def addresses(given: object) -> list[str]:
    """The addresses of a service in the first argument of an allocator; none if it names a database."""
    is_list = type(given) in {list, tuple, set, frozenset}  # and not a URL of SQLAlchemy, which is a tuple too
    several: list[object] = list(given) if is_list else [given]  # type: ignore[call-overload]
    named = [one for one in several if isinstance(one, str) and is_address(one)]
    if not is_list and not named:
        return []
    if len(named) < len(several) or not several:
        raise InvalidDatabase(
            "a list of servers may hold only addresses that begin with https://, http:// or unix:///; pass several "
            "databases as shards="
        )
    return [address_of(one) for one in named]


def is_address(text: str) -> bool:
    return text.partition("://")[0].lower() in SCHEMES or text[:5].lower() == "unix:"


def address_of(text: str) -> str:
    if text[:5].lower() == "unix:":
        return socket_of(text)
    try:
        parts = urlsplit(text)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise InvalidDatabase(
            "an address looks like https://ids.example.org or http://localhost:8000, without a query, got "
            f"{without_secrets(text)!a:.80}"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidDatabase(
            f"the address of a service may not hold a user or password; pass {without_secrets(text)!a:.80}, and the "
            "token as token="
        )
    return text.rstrip("/")


def without_secrets(text: str) -> str:
    """An address without what stands before the last `@`, and without its query."""
    return re.sub(r"//.*@", "//", text, flags=re.DOTALL).partition("?")[0].partition("#")[0]


def socket_of(text: str) -> str:
    _, _, path = text.partition("://")
    is_path = path.startswith("/") and not path.endswith("/") and path.isprintable()
    if not is_path or len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise InvalidDatabase(
            f"a Unix socket is written unix:///run/allocator/ids.sock, in at most {MAX_SOCKET_PATH} bytes, got "
            f"{text!a:.80}"
        )
    return f"unix://{path}"


class Servers:
    """The addresses and connections of a service. Thread-safe; connects with the first call."""

    def __init__(
        self,
        addresses: list[str],
        token: str | None,
        timeout: float,
        headers: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        if token is not None and (not isinstance(token, str) or not token.isascii() or not token.isprintable()):
            raise InvalidSetting("token must be a str of printable ASCII characters")
        if token is not None and not token.strip():
            raise InvalidSetting("token is empty; leave it out, or unset ALLOCATOR_TOKEN, if the service needs none")
        self._addresses = addresses
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._more = headers
        self._timeout = timeout
        self._closed = False
        self._first = 0
        self._pool = new_pool(len(addresses))

    @property
    def shown(self) -> str:
        return ", ".join(self._addresses)

    def request(
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
        """Send a request, to one server after another until one serves it. Raises the error of the last one.

        read: converts the JSON of the response; when it raises, the call discards the response and tries the next
        server.
        """
        end = monotonic() + PART_OF_TIMEOUT * (self._timeout if timeout is None else timeout)
        query = "&".join(f"{name}={quote(value)}" for name, value in (fields or {}).items())
        target = f"{path}?{query}" if query else path
        order = [*range(self._first, len(self._addresses)), *range(self._first)]
        error: AllocatorError = DatabaseUnavailable(f"no time was left for a request to {self.shown}")
        for tried, number in enumerate(order):
            left = end - monotonic()
            if left <= 0:
                break
            try:
                # A server that hangs leaves the others their share of the time.
                seconds = left / (len(order) - tried)
                answer = self._send(number, method, target, body, headers or {}, seconds)
                result = convert(self._addresses[number], read, answer)
            except (DatabaseUnavailable, DatabaseRefused) as failure:
                error = failure
                continue
            except AllocatorError:
                self._first = number  # this server works, and another one would give the same error
                raise
            self._first = number
            return result
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
        server = url = self._addresses[number]
        if server.startswith("unix://"):
            url, headers = "unix://" + server.removeprefix("unix://").encode().hex(), {**headers, "Host": "localhost"}
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data else {}
        all_headers = {**self._further(), **self._headers, **headers, **kind}
        try:
            # No retries by urllib3: `request` tries the next server itself. No decoding: the bound on the size of a
            # response counts bytes as they arrive, and a few compressed ones may be gigabytes.
            response = self._pool.request(
                method,
                url + target,
                body=data,
                headers=all_headers,
                timeout=Timeout(total=seconds),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            content = content_of(response)
        except SSLError as error:
            raise DatabaseRefused(
                f"TLS with {server} failed: {reason(error)}; if its certificate is self-signed, name the certificate "
                "file in the environment variable SSL_CERT_FILE"
            ) from error
        except (HTTPError, OSError) as error:
            raise DatabaseUnavailable(f"{server} did not answer: {reason(error)}") from error
        except ValueError as error:
            raise InvalidSetting(f"headers returned what HTTP refuses: {error}") from error
        if response.status not in {200, 201}:
            raise error_of(server, response.status, content)
        return parse(server, response.status, content)

    def _further(self) -> Mapping[str, str]:
        """What `headers` returns for this request."""
        if self._more is None:
            return {}
        try:
            return {str(name): str(value) for name, value in self._more().items()}
        except Exception as error:
            raise InvalidSetting(f"headers must return a mapping, got {type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._closed = True
        self._pool.clear()

    def abandon(self) -> None:
        """Replace the connections in the child of a fork: the old ones belong to the parent."""
        abandoned.append(self._pool)
        self._pool = new_pool(len(self._addresses))


def new_pool(servers: int) -> PoolManager:
    try:
        from allocator.remote import deadline
    except ImportError as error:
        raise InvalidDatabase(
            "a service needs urllib3, which is not installed; pip install 'segment-allocator[client]'"
        ) from error
    return deadline.new_pool(servers, CONNECTIONS)


def content_of(response: BaseHTTPResponse) -> bytes:
    """Read the body in chunks, so that a false Content-Length reserves no memory."""
    content = bytearray()
    while chunk := response.read1(CHUNK):
        content += chunk
    response.release_conn()
    return bytes(content)


def convert(server: str, read: Callable[[Any], T], value: Any) -> T:
    """Call `read`, and refuse a response of another kind of server."""
    try:
        return read(value)
    except (InvalidArgument, AttributeError, KeyError, TypeError) as error:
        raise DatabaseRefused(
            f"{server}: not a response of allocator serve: {printable(error)}; check the URL, and any proxy"
        ) from error


def parse(server: str, status: int, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DatabaseUnavailable(
            f"{server} answered {status} without JSON; check that this is the address of allocator serve"
        ) from error


def error_of(server: str, status: int, content: bytes) -> AllocatorError:
    """Translate problem+json back into the error that the service raised."""
    try:
        problem = json.loads(content)
        name, detail = str(problem["error"]), printable(problem["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        if status in {401, 403}:
            return AccessDenied(f"{server} answered {status}")
        if status == 429:
            return TooManyRequests(f"{server}: a proxy limits the requests of this client; retry in a second")
        return DatabaseUnavailable(
            f"{server} answered {status} without problem+json; check that this is the address of allocator serve"
        )
    kind = getattr(allocator.errors, name, None)
    if kind in FAILOVER_ERRORS or (kind is None and status == 503):
        return DatabaseUnavailable(f"{server} cannot serve now: {detail}")
    if isinstance(kind, type) and issubclass(kind, AllocatorError) and kind is not AllocatorError:
        return kind(detail)
    return DatabaseRefused(f"{server} answered {status}: {detail}")


def reason(error: BaseException) -> str:
    """The innermost cause, as the shortest text."""
    parts = [part for part in error.args if isinstance(part, BaseException)]  # of urllib3's ProtocolError
    inner = getattr(error, "reason", None) or error.__cause__ or (parts or [error])[-1]
    return f"{type(inner).__name__}: {printable(str(inner).rpartition(': ')[2])}"


def printable(value: object) -> str:
    """Text of a server, shortened and without control characters, for messages and logs."""
    text = str(value)[:MAX_DETAIL]
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
