"""Which HTTP status an error has, and how it is told: application/problem+json (RFC 9457), in one sentence.

    {"type": "urn:allocator:UnknownTag", "title": "Not Found", "status": 404, "error": "UnknownTag",
     "detail": "tag 'order' does not exist; …", "request": "5f1c-2a"}

What an operator must know, and nobody else, goes to the log: the reason why a database is away names hosts and users.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from allocator.errors import (
    AccessDenied,
    AllocatorError,
    ClockWentBack,
    DatabaseUnavailable,
    Exhausted,
    InvalidArgument,
    LeaseLost,
    MaxValueWentBack,
    NodeIdsExhausted,
    TagExists,
    TooManyRequests,
    UnknownTag,
)

CONTENT_TYPE = "application/problem+json"


class HttpRefusal(AllocatorError):
    """What is refused for its form, before any id is asked for."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Unauthorized(AccessDenied):
    """No token, or one that is not known, was revoked or has expired."""


STATUSES: tuple[tuple[type[AllocatorError], int], ...] = (
    (InvalidArgument, 400),
    (Unauthorized, 401),
    (AccessDenied, 403),
    (UnknownTag, 404),
    (TagExists, 409),
    (LeaseLost, 409),
    (Exhausted, 410),
    (TooManyRequests, 429),
    (AllocatorError, 503),
)
"""The first that fits; whatever is the service's own trouble comes last."""

RETRY_AFTER: tuple[tuple[type[AllocatorError], int], ...] = (
    (TooManyRequests, 1),
    (DatabaseUnavailable, 1),
    (AllocatorError, 30),
)
"""Seconds; the long one is for what passes only when somebody mends it."""

TELLABLE = (
    InvalidArgument,
    AccessDenied,
    UnknownTag,
    TagExists,
    LeaseLost,
    Exhausted,
    TooManyRequests,
    MaxValueWentBack,
    NodeIdsExhausted,
    ClockWentBack,
    HttpRefusal,
)
"""Errors whose message is about the request; of the others the caller learns the kind alone."""


def status_of(error: AllocatorError) -> int:
    if isinstance(error, HttpRefusal):
        return error.status
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def detail_of(error: AllocatorError) -> str:
    if isinstance(error, TELLABLE):
        return str(error)
    return (type(error).__doc__ or "").splitlines()[0]


def name_of(error: AllocatorError) -> str:
    """The public name of an error."""
    if isinstance(error, HttpRefusal):
        return "Refused"
    return "AccessDenied" if isinstance(error, Unauthorized) else type(error).__name__


def headers_of(error: AllocatorError) -> dict[str, str]:
    status = status_of(error)
    headers = dict(error.headers) if isinstance(error, HttpRefusal) else {}
    if status in {429, 503}:
        headers["retry-after"] = str(next(seconds for kind, seconds in RETRY_AFTER if isinstance(error, kind)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers


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
