"""Start the service: one socket, and as many processes as wanted that answer on it."""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from logging.config import dictConfig
from pathlib import Path
from tempfile import TemporaryDirectory

from allocator.backend import Databases
from allocator.background import Background
from allocator.errors import DatabaseUnavailable, InvalidSetting
from allocator.servers import addresses
from allocator.service.logs import config_of
from allocator.service.settings import FIGURES, ServeSettings
from allocator.tokens import Tokens

log = logging.getLogger("allocator.service")

LOOPBACK = "127.0.0.1"
GRACE = 10
"""Seconds for requests under way, once the service was told to stop."""
KEEP_ALIVE = 75
"""Seconds; longer than common balancers keep a connection, so that it is they who close it."""


def serve(given: ServeSettings) -> None:
    """Serve until SIGTERM or SIGINT: then what is under way is answered, and nothing more is accepted."""
    if addresses(list(given.urls)):
        raise InvalidSetting("a service stands before databases, and not before another service")
    dictConfig(config_of(given.logs))
    settings = guarded(given)
    with TemporaryDirectory(prefix="allocator-") as folder:
        figures = Path(folder) / "figures"
        figures.mkdir()
        os.environ[FIGURES] = str(figures)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, ignored)  # uvicorn has its own while it serves, and raises it again afterwards
        run(replace(settings, folder=folder))


def ignored(number: int, frame: object) -> None:
    """The end is near anyway."""


def run(settings: ServeSettings) -> None:
    try:
        import uvicorn
        from uvicorn.supervisors import Multiprocess

        from allocator.service.app import application
        from allocator.service.protocol import BoundedProtocol
    except ImportError as error:
        raise InvalidSetting(
            f"the service needs {error.name}, which is not installed; pip install 'allocator[server]'"
        ) from error
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
        log_config=config_of(settings.logs),
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=KEEP_ALIVE,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
    try:
        socket = config.bind_socket()
    except SystemExit:
        place = f"{settings.host}:{settings.port}"
        raise InvalidSetting(f"{place} cannot be listened on; the line above says why") from None
    if settings.workers == 1:
        uvicorn.Server(config).run(sockets=[socket])
    else:
        Multiprocess(config, sockets=[socket]).run()


# -- who may come in


def guarded(settings: ServeSettings) -> ServeSettings:
    """Without any token, this machine alone."""
    if not has_no_tokens(settings):
        return settings
    host = settings.host if is_loopback(settings.host) else LOOPBACK
    log.warning(
        "no token was made yet, so only %s is listened on, and whoever is on this machine may do everything; "
        "for others, run: allocator tokens create NAME, and start the service again",
        host,
    )
    return replace(settings, host=host, is_open=True)


def has_no_tokens(settings: ServeSettings) -> bool:
    background = Background()
    databases = Databases(list(settings.urls), background, None, None, settings.timeout)
    try:
        return not Tokens(databases.first).list()
    except DatabaseUnavailable as error:
        log.warning("whether there are tokens is not known yet, so one is needed: %s", error)
        return False
    finally:
        background.close(settings.timeout)
        databases.close()


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
