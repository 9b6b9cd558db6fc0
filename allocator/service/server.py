"""Starts the service: opens a socket, and serves the application on it in this process."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from contextlib import closing, contextmanager
from importlib.metadata import PackageNotFoundError, distribution, requires
from logging.config import dictConfig
from typing import TYPE_CHECKING

from allocator.database.address import address_of
from allocator.database.store import Database
from allocator.errors import AllocatorError, DatabaseUnavailable, InvalidSetting
from allocator.remote.service_address import addresses, is_loopback
from allocator.service.log_config import config_of
from allocator.service.settings import ServeSettings
from allocator.service.token_administration import Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("allocator.service")

NEEDED = re.compile("([A-Za-z0-9-]+).*extra == ['\"]server['\"]")
"""A package of the extra `server`, as our own metadata names it."""


@contextmanager
def logged(form: str) -> Iterator[None]:
    """Write the log in this format, also the error that ends the service where it is JSON."""
    dictConfig(config_of(form))
    try:
        yield
    except AllocatorError as error:
        if form == "text":
            raise
        log.critical("%s", error, extra={"error": type(error).__name__})
        sys.exit(1)


def serve(settings: ServeSettings) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, then accept no more and finish the running requests."""
    if any(addresses(url) for url in settings.urls):
        raise InvalidSetting("--url must be a database; a service cannot run in front of another service")
    from allocator.service.http_server import listening, run

    check_access(settings)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")  # else it looks for some in all installed packages
    os.environ.setdefault("PROMETHEUS_DISABLE_CREATED_SERIES", "true")  # else each counter has a second series
    import uvloop

    from allocator.service.app import application

    with (
        listening(settings.host, settings.port) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(run(application(settings), listener, settings))


def check_installed() -> None:
    if sys.platform == "win32":
        raise InvalidSetting("the service runs on Linux and macOS; on Windows use a container")
    for name in filter(None, map(NEEDED.match, requires("segment-allocator") or ())):
        try:
            distribution(name[1])
        except PackageNotFoundError:
            raise InvalidSetting(
                f"the service needs {name[1]}, which is not installed; pip install 'segment-allocator[server]'"
            ) from None


def check_access(settings: ServeSettings) -> None:
    """Refuse to start without any token, unless --open serves this machine only."""
    place, is_local = settings.host, is_loopback(settings.host)
    if settings.is_open and not is_local:
        raise InvalidSetting(
            f"--open serves this machine only, and cannot listen on {place}; leave it out, and create a "
            "token with: allocator tokens create NAME"
        )
    with closing(Database(settings.tokens_at, settings.timeout)) as database:
        log.info("ids come from %s", ", ".join(address_of(url).shown for url in settings.urls))
        if settings.tokens_url or len(settings.urls) > 1:
            log.info("tokens are in %s", database.shown)
        tokens = Tokens(database)
        try:
            _, made = tokens.state()
        except DatabaseUnavailable as error:
            log.warning("cannot check yet whether a token exists: %s", error)
            return
        if not made and not settings.is_open:
            alone = "; or serve only this machine, without tokens, with: allocator serve --open" if is_local else ""
            raise InvalidSetting(
                f"no token exists in {database.shown}, so nobody could use the service on {place}; create "
                f"one with: allocator tokens create NAME{alone}"
            )
    if not made:
        log.warning(
            "no token exists: serving this machine only, without authentication. Create one with: "
            "allocator tokens create NAME"
        )
