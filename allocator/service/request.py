"""A request as the handlers see it, read and allowed, and what they answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from allocator.service.auth import Grant
from allocator.service.caller import Caller


@dataclass(frozen=True, slots=True)
class Asked:
    grant: Grant
    path: str
    names: Mapping[str, str]
    query: Mapping[str, Any]
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    caller: Caller


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is bytes, or what becomes JSON."""

    body: Any
    status: int = 200


Handler = Callable[[Asked], Awaitable[Answer]]
