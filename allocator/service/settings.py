"""The settings of the service."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocator.service.token_administration import home_of

LEAF, TINYID = COMPATIBLE = ("leaf", "tinyid")


@dataclass(frozen=True)
class ServeSettings:
    """The options of `allocator serve`. URLs hold passwords, so `repr` omits them.

    is_open: requests from this machine may do everything until a token exists.
    """

    urls: tuple[str, ...] = field(repr=False)
    tokens_url: str | None = field(default=None, repr=False)
    host: str = "127.0.0.1"
    port: int = 8000
    timeout: float = 5.0
    compat: tuple[str, ...] = ()
    is_open: bool = False
    log_format: str = "json"
    certificate: str | None = None
    key: str | None = None

    @property
    def tokens_at(self) -> str:
        """The URL of the database that keeps the tokens."""
        return self.tokens_url or home_of(self.urls)
