"""Starts the service: one socket, and the worker processes that serve it."""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_address
from logging.config import dictConfig
from pathlib import Path
from secrets import token_bytes
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from allocator.backend import databases_at
from allocator.errors import DatabaseUnavailable, InvalidSetting
from allocator.remote.http import addresses
from allocator.service.listening import listening
from allocator.service.log_config import config_of
from allocator.service.settings import FIGURES, STOPPING, ServeSettings
from allocator.service.token_administration import Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket

    import uvicorn

log = logging.getLogger("allocator.service")

NEEDED = ("httptools", "itsdangerous", "jinja2", "prometheus_client", "pythonjsonlogger", "starlette", "uvicorn")

FILES = 65_536
"""Raise the limit of open files to this: each connection of a client is one, and shells often allow only 1024."""
GRACE = 10
"""Seconds for running requests to finish when the service stops."""
WORKER_SILENCE = 30
"""Seconds after which a silent worker is replaced. The imports at the start can take many on a busy machine."""
KEEP_ALIVE = 75
"""Seconds. Longer than common load balancers keep a connection, so that they close it and not we."""


def serve(given: ServeSettings, unknown: Sequence[str] = ()) -> None:
    """Serve until SIGTERM or SIGINT, then finish the running requests and accept no more.

    unknown: names of environment variables that look like ours.
    """
    if any(addresses(url) for url in given.urls):
        raise InvalidSetting("--url must be a database; a service cannot run in front of another service")
    check_installed()
    dictConfig(config_of(given.logs, given.pasteable))
    if unknown:
        log.warning("these environment variables are unknown and ignored: %s", ", ".join(unknown))
    check_access(given)
    allow_many_files()
    with TemporaryDirectory(prefix="allocator-") as folder:
        figures = Path(folder) / "figures"
        figures.mkdir()
        os.environ[FIGURES] = str(figures)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # uvicorn raises the signal again after its own shutdown
        run(replace(given, folder=folder, console_key=token_bytes(32)))


def check_installed() -> None:
    for name in NEEDED:
        if find_spec(name) is None:
            raise InvalidSetting(
                f"the service needs {name}, which is not installed; pip install 'segment-allocator[server]'"
            )


def allow_many_files() -> None:
    """Raise the limit of open files: the usual 1024 are too few for many idle connections."""
    try:
        import resource
    except ImportError:  # on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run(settings: ServeSettings) -> None:
    import uvicorn

    from allocator.service.app import application
    from allocator.service.protocol import BoundedProtocol

    config = uvicorn.Config(
        partial(application, settings),
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        server_header=False,
        log_config=config_of(settings.logs, settings.pasteable),
        timeout_graceful_shutdown=GRACE,
        timeout_worker_healthcheck=WORKER_SILENCE,
        timeout_keep_alive=KEEP_ALIVE,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
    with listening(config, settings) as bound:
        if settings.workers == 1:
            uvicorn.Server(config).run(sockets=[bound])
        else:
            supervise(config, bound, Path(settings.folder) / STOPPING)


def supervise(config: uvicorn.Config, listening: socket, stopping: Path) -> None:
    from uvicorn.supervisors import Multiprocess

    class Supervisor(Multiprocess):
        def keep_subprocess_alive(self) -> None:
            """Close our copies of the workers' pipe ends, which would hide a dead worker for five seconds."""
            for process in self.processes:
                process.child_conn.close()
            super().keep_subprocess_alive()

        def terminate_all(self) -> None:
            stopping.touch()  # for workers that are still starting and handle no signal yet
            super().terminate_all()

    Supervisor(config, sockets=[listening]).run()


def check_access(settings: ServeSettings) -> None:
    """Refuse to start without any token, unless --open serves this machine only."""
    place, is_local = settings.unix or settings.host, bool(settings.unix) or is_loopback(settings.host)
    if settings.is_open and not is_local:
        raise InvalidSetting(
            f"--open serves this machine only, and cannot listen on {place}; leave it out, and create a "
            "token with: allocator tokens create NAME"
        )
    with databases_at(settings.urls, settings.timeout, settings.shard_hosts) as databases:
        log.info("serving ids out of %s", databases.shown)
        tokens = Tokens(databases.lead)
        try:
            (found, made), rated = tokens.state(), tokens.names_with_rates()
        except DatabaseUnavailable as error:
            log.warning("cannot check yet whether a token exists: %s", error)
            return
        if not made and not settings.is_open:
            alone = "; or serve only this machine, without tokens, with: allocator serve --open" if is_local else ""
            raise InvalidSetting(
                f"no token exists in {databases.shown}, so nobody could use the service on {place}; create "
                f"one with: allocator tokens create NAME{alone}"
            )
        names = {token.name for token in found}
        if settings.compat_token not in {"", *names}:
            raise InvalidSetting(
                f"--compat-token: {databases.shown} has no token named {settings.compat_token!a:.80}; create it with: "
                f"allocator tokens create {settings.compat_token:.80}"
            )
    if "anonymous" in names - {settings.compat_token}:
        log.warning("the token 'anonymous' no longer gives rights to requests without a token; see --compat-token")
    if rated:
        log.warning("the rates of these tokens no longer apply; limit requests in a proxy: %s", ", ".join(rated))
    if not made:
        log.warning(
            "no token exists: serving this machine only, without authentication. Create one with: "
            "allocator tokens create NAME"
        )


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
