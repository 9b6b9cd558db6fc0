"""The settings of the service."""

from __future__ import annotations

from dataclasses import dataclass, field

LEAF, TINYID = COMPATIBLE = ("leaf", "tinyid")


@dataclass(frozen=True)
class ServeSettings:
    """The options of `allocator serve`. URLs hold passwords, so `repr` omits them.

    is_open: requests from this machine may do everything until a token exists.
    """

    urls: tuple[str, ...] = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 8000
    timeout: float = 5.0
    compat: tuple[str, ...] = ()
    is_open: bool = False
    log_format: str = "json"
