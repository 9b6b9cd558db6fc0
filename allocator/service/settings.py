"""The settings of the service, as they are handed to its workers."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocator.rules.hosts import Hosts

FIGURES = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder of the workers' figures; prometheus-client looks at it when it is imported."""

SERVED, STOPPING = "served", "stopping"
"""Files in the folder of a run, that are there once a worker has begun, and once all are to end."""

LEAF, TINYID = COMPATIBLE = ("leaf", "tinyid")


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """`urls` hold passwords, so they are shown nowhere.

    create, max_tags: whether a tag is made when it is first used, and how many tags there may be for that.
    is_open: everybody on this machine may do everything until a token is made.
    folder: of this run, for what the workers share: the figures.
    console, console_key: whether there are pages for people, and the key of their sessions, drawn by each run.
    """

    urls: tuple[str, ...] = field(repr=False)
    shard_hosts: Hosts = ()
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    create: bool = True
    max_tags: int = 10_000
    timeout: float = 5.0
    compat: tuple[str, ...] = ()
    is_open: bool = False
    folder: str = ""
    logs: str = "json"
    certificate: str | None = None
    key: str | None = None
    console: bool = True
    console_key: bytes = field(default=b"", repr=False)
