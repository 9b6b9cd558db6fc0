"""Which HTTP status an error has, and how it is told: application/problem+json (RFC 9457), in one sentence.

    {"type": "urn:allocator:UnknownTag", "title": "Not Found", "status": 404, "error": "UnknownTag",
     "detail": "tag 'order' does not exist; …", "request": "5f1c-2a"}

What an operator must know, and nobody else, goes to the log: the reason why a database is away names hosts and users.
"""

from __future__ import annotations

import json
from http import HTTPStatus
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


STATUSES: tuple[tuple[type[AllocatorError], int], ...] = (
    (InvalidArgument, 400),
    (Unauthorized, 401),
    (AccessDenied, 403),
    (UnknownTag, 404),
    (TagExists, 409),
    (LeaseLost, 409),
    (SaysWentBack, 409),
    (Exhausted, 410),
    (TooManyRequests, 429),
    (AllocatorError, 503),
)
"""The first that fits; whatever is the service's own trouble comes last."""

SOON, WHEN_MENDED = 1, 30
"""Seconds after which to ask again."""

TOLD: tuple[tuple[type[AllocatorError], str], ...] = (
    (FleetGrowing, "more databases are being added just now; trying again in a moment is safe"),
    (DatabaseUnavailable, "the database cannot be reached just now; trying again is safe"),
    (DatabaseRefused, "the database refuses the service; its operator finds the reason in the log"),
    (SchemaOutOfDate, "the tables are not those that the service needs; its operator finds the reason in the log"),
    (SchemaDamaged, "the tables were altered; the operator of the service finds the reason in the log"),
    (ShardMisconfigured, "the databases do not fit together; the operator of the service finds the reason in the log"),
    (NodeIdsExhausted, "no node or worker number is free just now; the operator of the service finds more in the log"),
    (AllocatorClosed, "the service is being stopped; another one may answer"),
    (AllocatorError, "the service cannot do this just now; its operator finds the reason in the log"),
)
"""What callers learn of troubles whose own words name hosts and users; the first that fits."""

TELLABLE = (
    InvalidArgument,
    AccessDenied,
    UnknownTag,
    TagExists,
    LeaseLost,
    Exhausted,
    TooManyRequests,
    MaxValueWentBack,
    ClockWentBack,
    HttpRefusal,
)
"""Errors whose message is about the request; of the others the caller learns the kind alone."""


def status_of(error: AllocatorError) -> int:
    if isinstance(error, HttpRefusal):
        return error.status
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def detail_of(error: AllocatorError) -> str:
    if isinstance(error, TELLABLE) and "://" not in str(error):
        return str(error)
    return next(sentence for kind, sentence in TOLD if isinstance(error, kind))


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


def problem(error: AllocatorError, request: str) -> dict[str, Any]:
    status = status_of(error)
    name = name_of(error)
    return {
        "type": f"urn:allocator:{name}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "error": name,
        "detail": detail_of(error),
        "request": request,
    }


def body_of(error: AllocatorError, request: str) -> bytes:
    return json.dumps(problem(error, request)).encode()
