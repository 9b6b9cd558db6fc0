"""Which HTTP status an error has, and how it is told: application/problem+json (RFC 9457), in one sentence.

    {"type": "urn:allocator:UnknownTag", "title": "Not Found", "status": 404, "error": "UnknownTag",
     "detail": "tag 'order' does not exist; …", "request": "5f1c-2a"}

What an operator must know, and nobody else, goes to the log: the reason why a database is away names hosts and users.
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

from allocator.errors import (
    AccessDenied,
    AllocatorClosed,
    AllocatorError,
    ClockWentBack,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    FleetGrowing,
    InvalidArgument,
    LeaseLost,
    MaxValueWentBack,
    NodeIdsExhausted,
    SchemaDamaged,
    SchemaOutOfDate,
    ShardMisconfigured,
    TagExists,
    TooManyRequests,
    UnknownTag,
)
from allocator.service.log_config import REFUSED, caller_of, masked

log = logging.getLogger(REFUSED)

PUBLIC = AllocatorError.__module__
CONTENT_TYPE = "application/problem+json"


class HttpRefusal(AllocatorError):
    """What is refused for its form, before any id is asked for."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Busy(HttpRefusal):
    """Too many wait for the same costly work."""

    def __init__(self, detail: str) -> None:
        super().__init__(503, detail)


class Unauthorized(AccessDenied):
    """No token, or one that is not known, was revoked or has expired."""


class SaysWentBack(MaxValueWentBack):
    """A client has seen more than the database has; whether that is so for others too shows at their own claims."""


IN_THE_LOG = "; the operator of the service finds the reason in the log"

PROBLEMS: tuple[tuple[type[AllocatorError], int, str], ...] = (
    (InvalidArgument, 400, ""),
    (Unauthorized, 401, ""),
    (AccessDenied, 403, ""),
    (UnknownTag, 404, ""),
    (TagExists, 409, ""),
    (LeaseLost, 409, ""),
    (SaysWentBack, 409, ""),
    (Exhausted, 410, ""),
    (TooManyRequests, 429, ""),
    (MaxValueWentBack, 503, ""),
    (ClockWentBack, 503, ""),
    (FleetGrowing, 503, "more databases are being added just now; trying again in a moment is safe"),
    (DatabaseUnavailable, 503, "the database cannot be reached just now; trying again is safe"),
    (DatabaseRefused, 503, "the database refuses the service" + IN_THE_LOG),
    (SchemaOutOfDate, 503, "the tables are not those that the service needs" + IN_THE_LOG),
    (SchemaDamaged, 503, "the tables were altered" + IN_THE_LOG),
    (ShardMisconfigured, 503, "the databases do not fit together" + IN_THE_LOG),
    (NodeIdsExhausted, 503, "no node or worker number is free just now" + IN_THE_LOG),
    (AllocatorClosed, 503, "the service is being stopped; another one may answer"),
    (AllocatorError, 503, "the service cannot do this just now" + IN_THE_LOG),
)
"""The status of an error, and what callers learn instead of its own words, which may name hosts and users.

The first that fits. Without a sentence the message is about the request, and callers learn that."""

SOON, WHEN_MENDED = 1, 30
"""Seconds after which to ask again."""


def status_of(error: AllocatorError) -> int:
    return error.status if isinstance(error, HttpRefusal) else row_of(error)[0]


def detail_of(error: AllocatorError) -> str:
    sentence = "" if isinstance(error, HttpRefusal) else row_of(error)[1]
    if not sentence and "://" in str(error):
        sentence = PROBLEMS[-1][2]
    return sentence or str(error)


def row_of(error: AllocatorError) -> tuple[int, str]:
    """The status and the sentence."""
    return next((status, sentence) for kind, status, sentence in PROBLEMS if isinstance(error, kind))


def name_of(error: AllocatorError) -> str:
    """The public name of an error."""
    if isinstance(error, HttpRefusal):
        return "Refused"
    kind = type(error)
    return (kind if kind.__module__ == PUBLIC else kind.__bases__[0]).__name__


def headers_of(error: AllocatorError) -> dict[str, str]:
    status = status_of(error)
    headers = dict(error.headers) if isinstance(error, HttpRefusal) else {}
    if status in {429, 503}:
        headers["retry-after"] = str(retry_after(error))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers


def retry_after(error: AllocatorError) -> int:
    if isinstance(error, TooManyRequests):
        return max(1, ceil(error.seconds))
    return SOON if isinstance(error, DatabaseUnavailable | Busy) else WHEN_MENDED


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


# -- one refusal: a problem for the caller, a line in the log, and a figure

NO_STORE = {"cache-control": "no-store"}
"""A cached answer would be a duplicate."""

REQUEST_NAME = re.compile(rb"[A-Za-z0-9_.:/+=-]{1,128}")

prefix = secrets.token_hex(4)
numbers = count(1)


def request_name(headers: Mapping[bytes, bytes]) -> str:
    """The caller's name for this request, if it is a decent one, or a new one."""
    given = headers.get(b"x-request-id", b"")
    return given.decode() if REQUEST_NAME.fullmatch(given) else f"{prefix}-{next(numbers):x}"


@dataclass(frozen=True, slots=True)
class Refusals:
    """`counted` is told the status and the name of every error."""

    counted: Callable[[int, str], None]

    def tell(self, error: AllocatorError, scope: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body. What the caller must not see stands in the log alone."""
        request, status, name = request_name(dict(scope["headers"])), status_of(error), name_of(error)
        self.counted(status, name)
        method, caller = scope["method"], caller_of(scope)
        about = {
            "request": request,
            "method": method,
            "path": masked(ascii(scope["path"])[1:-1])[:200],
            "status": status,
            "error": name,
            "caller": caller.address,
            "token": caller.token,
        }
        level = logging.WARNING if status >= 500 else logging.INFO
        log.log(level, "%d %s %s [%s] from %s: %s", status, method, about["path"], request, caller, error, extra=about)
        told = NO_STORE | headers_of(error) | {"content-type": CONTENT_TYPE, "x-request-id": request}
        return status, told, body_of(error, request)
