"""The HTTP status of each error, and its application/problem+json (RFC 9457).

    {"type": "urn:allocator:UnknownTag", "title": "Not Found", "status": 404, "error": "UnknownTag",
     "detail": "tag 'order' does not exist; …", "request": "5f1c-2a"}

Errors of the database may name hosts and users: their text goes only to the log.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from math import ceil
from typing import Any

from starlette.responses import Response

from allocator import errors
from allocator.errors import AccessDenied, AllocatorError, MaxValueWentBack
from allocator.service.log_config import caller_of, masked

log = logging.getLogger("allocator.service.refusal_log")

CONTENT_TYPE = "application/problem+json"


class HttpRefusal(AllocatorError):
    """An invalid HTTP request, refused before it draws an id."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Unauthorized(AccessDenied):
    """The token is missing, or `was_sent` and unknown, revoked or expired.

    reason: which of these, for the log in place of the detail. A stranger must not learn whether a token existed.
    """

    def __init__(self, detail: str, was_sent: bool = False, reason: str = "") -> None:
        super().__init__(detail)
        self.was_sent = was_sent
        self.reason = reason


class ClientIsAhead(MaxValueWentBack):
    """A client has seen higher ids than the database knows. Other clients may not have, so only its call fails."""


CREATE_IT = "; create it by PUT, or with: allocator tags create TAG"
IN_THE_LOG = "; the operator of the service finds the reason in the log"

PROBLEMS: tuple[tuple[type[AllocatorError], int, str], ...] = (
    (errors.InvalidArgument, 400, ""),
    (Unauthorized, 401, ""),
    (AccessDenied, 403, ""),
    (errors.UnknownTag, 404, ""),
    (errors.TagExists, 409, ""),
    (errors.LeaseLost, 409, ""),
    (ClientIsAhead, 409, ""),
    (errors.Exhausted, 410, ""),
    (errors.TooManyRequests, 429, ""),
    (MaxValueWentBack, 503, ""),
    (errors.ClockWentBack, 503, ""),
    (errors.DatabaseUnavailable, 503, "the database is unavailable; it is safe to retry"),
    (errors.DatabaseRefused, 503, "the database refuses the service, as without a right or the password" + IN_THE_LOG),
    (errors.SchemaOutOfDate, 503, "tables are missing, or are those of another version" + IN_THE_LOG),
    (errors.SchemaDamaged, 503, "somebody altered the tables" + IN_THE_LOG),
    (errors.ShardMisconfigured, 503, "a database is not the slot that its URL says" + IN_THE_LOG),
    (errors.NodeIdsExhausted, 503, "no node or worker number is free" + IN_THE_LOG),
    (errors.AllocatorClosed, 503, "this server is shutting down; retry on another one"),
    (AllocatorError, 503, "the service cannot do this now" + IN_THE_LOG),
)
"""The status of each error, and the detail for callers. The first row that matches applies.

Without a detail, callers get the message of the error, since it is only about their request."""

SENTENCES = {
    400: "The request is invalid",
    401: "The request needs a valid token",
    403: "The token does not allow this",
    404: "The path or tag does not exist",
    408: "The request did not arrive in time",
    409: "The tag exists already, the lease was lost, or the database lost ids that the client has seen",
    410: "The tag has issued its last id",
    413: "The body is too large",
    414: "The query is too long",
    429: "The token has used its rate of nodes and workers; retry after the seconds in Retry-After",
    503: "The database is unavailable or needs repair; retry after the seconds in Retry-After",
}
"""What each status means, for the description of every route."""

SOON, AFTER_REPAIR = 1, 30
"""Seconds in Retry-After, for an error that passes by itself and for one that an operator must repair."""


URL = re.compile(r"[\w+.-]+://[^\s'\"]*")
"""May name a database, or be a caller's own text."""


def status_of(error: AllocatorError) -> int:
    return row_of(error)[0]


def detail_of(error: AllocatorError) -> str:
    status, detail = row_of(error)
    if detail:
        return detail
    if isinstance(error, errors.UnknownTag):
        return str(error).partition(";")[0] + CREATE_IT  # the rest names tags that the token may not know of
    if status < 500:
        return URL.sub("(a URL)", str(error))
    return PROBLEMS[-1][2] if "://" in str(error) else str(error)  # it would name a database


def row_of(error: AllocatorError) -> tuple[int, str]:
    if isinstance(error, HttpRefusal):
        return error.status, str(error)
    return next((status, detail) for kind, status, detail in PROBLEMS if isinstance(error, kind))


def name_of(error: AllocatorError) -> str:
    """The public name of an error."""
    if isinstance(error, HttpRefusal):
        return "Refused"
    kind = type(error)
    return (kind if kind.__module__ == errors.__name__ else kind.__bases__[0]).__name__


def headers_of(error: AllocatorError) -> dict[str, str]:
    status = status_of(error)
    headers = dict(error.headers) if isinstance(error, HttpRefusal) else {}
    if status in {429, 503}:
        headers.setdefault("retry-after", str(retry_after(error)))
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = 'Bearer error="invalid_token"' if error.was_sent else "Bearer"
    return headers


def retry_after(error: AllocatorError) -> int:
    if isinstance(error, errors.TooManyRequests):
        return max(1, ceil(error.retry_after))
    return SOON if isinstance(error, errors.DatabaseUnavailable | errors.AllocatorClosed) else AFTER_REPAIR


def body_of(error: AllocatorError, request: str) -> bytes:
    status, name = status_of(error), name_of(error)
    problem = {
        "type": f"urn:allocator:{name}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "error": name,
        "detail": detail_of(error),
        "request": request,
    }
    return json.dumps(problem).encode()


LINE = "%d %s %s [%s] from %s: %s"

NO_STORE = {"cache-control": "no-store"}
"""A cached response would issue its ids twice."""

REQUEST_NAME = re.compile(rb"[A-Za-z0-9_.:/+=-]{1,128}")
prefix = secrets.token_hex(4)
numbers = count(1)


def request_name(headers: Mapping[bytes, bytes]) -> str:
    """The id of a request: the caller's X-Request-Id if it is well-formed, else a new one."""
    given = headers.get(b"x-request-id")
    return given.decode() if given and REQUEST_NAME.fullmatch(given) else f"{prefix}-{next(numbers):x}"


@dataclass(frozen=True, slots=True)
class ErrorReporter:
    """Reports errors to callers, to the log and to `count`, with their status and name."""

    count: Callable[[int, str], None]

    def response(self, error: AllocatorError, scope: Mapping[str, Any]) -> Response:
        """Count, log and answer an error. Only the log has its full text."""
        request, caller = request_name(dict(scope["headers"])), caller_of(scope)
        status, name, method = status_of(error), name_of(error), scope["method"]
        self.count(status, name)
        told = error.reason if isinstance(error, Unauthorized) and error.reason else str(error)
        is_told_ahead = isinstance(error, ClientIsAhead)
        if is_told_ahead:  # the text is for the client's process; this one is not stopped, and cannot check the claim
            told = f"the client says: {told}"
        about = {
            "request": request,
            "method": method,
            "path": masked(ascii(scope["path"])[1:-1])[:200],
            "status": status,
            "error": name,
            "caller": caller.address,
            "token": caller.token,
        }
        level = logging.WARNING if status >= 500 or is_told_ahead else logging.INFO
        log.log(level, LINE, status, method, about["path"], request, caller, told, extra=about)
        headers = NO_STORE | headers_of(error) | {"content-type": CONTENT_TYPE, "x-request-id": request}
        return Response(body_of(error, request), status, headers)
