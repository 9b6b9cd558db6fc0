"""The settings of the service, which it passes to its workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from allocator.rules.hosts import Hosts

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable with the folder of the workers' metrics. prometheus-client reads it on import."""

SERVED = "served"
"""A marker file in the folder of a run: a worker has started."""

LEAF, TINYID = COMPATIBLE = ("leaf", "tinyid")


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The options of `allocator serve`. `urls` hold passwords, so `repr` omits them.

    unix: the path of a Unix socket, in place of the host and port; empty for these.
    create, max_tags: create tags on first use; create none once this many exist.
    compat_token: the name of the token of compatible routes for clients that cannot send one; empty for none.
    is_open: requests from this machine may do everything until a token exists.
    folder: shared by the workers of this run, for their metrics.
    pasteable: adds the given URLs to the commands that a log message recommends.
    console, console_key: serve the console, and the key of its sessions, new for each run.
    """

    urls: tuple[str, ...] = field(repr=False)
    shard_hosts: Hosts = ()
    host: str = "127.0.0.1"
    unix: str = ""
    port: int = 8000
    workers: int = 1
    create: bool = True
    max_tags: int = 10_000
    timeout: float = 5.0
    compat: tuple[str, ...] = ()
    compat_token: str = ""
    is_open: bool = False
    folder: str = ""
    logs: str = "json"
    pasteable: Callable[[str], str] = str
    certificate: str | None = None
    key: str | None = None
    console: bool = True
    console_key: bytes = field(default=b"", repr=False)
