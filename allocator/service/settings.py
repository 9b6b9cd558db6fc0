"""The settings of the service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from allocator.rules.hosts import Hosts

LEAF, TINYID = COMPATIBLE = ("leaf", "tinyid")


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The options of `allocator serve`. `urls` hold passwords, so `repr` omits them.

    unix: the path of a Unix socket, in place of the host and port; empty for these.
    create, max_tags: create tags on first use; create none once this many exist.
    compat_token: the name of the token of compatible routes for clients that cannot send one; empty for none.
    is_open: requests from this machine may do everything until a token exists.
    pasteable: adds the given URLs to the commands that a log message recommends.
    """

    urls: tuple[str, ...] = field(repr=False)
    shard_hosts: Hosts = ()
    host: str = "127.0.0.1"
    unix: str = ""
    port: int = 8000
    create: bool = True
    max_tags: int = 10_000
    timeout: float = 5.0
    compat: tuple[str, ...] = ()
    compat_token: str = ""
    is_open: bool = False
    logs: str = "json"
    pasteable: Callable[[str], str] = str
    certificate: str | None = None
    key: str | None = None
    console: bool = True
