"""A database server that runs, however it was started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Running:
    url: str
    origin: str
    stop: Callable[[], None] = nothing
    freeze: Callable[[], None] | None = None
    """Stop every process of the server, as SIGSTOP does; its connections stay open and silent."""
    thaw: Callable[[], None] = nothing
