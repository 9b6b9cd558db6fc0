"""How a refusal leaves the service: a problem for the caller, a line in the log, and a figure."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from allocator.errors import AllocatorError
from allocator.service.caller import caller_of
from allocator.service.log_config import REFUSED, masked
from allocator.service.problems import CONTENT_TYPE, body_of, headers_of, name_of, status_of

log = logging.getLogger(REFUSED)

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
