"""Starts the service: granian's worker processes, which serve the application."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from logging.config import dictConfig
from pathlib import Path
from secrets import token_bytes
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from allocator.backend import databases_at
from allocator.errors import DatabaseUnavailable, InvalidSetting
from allocator.remote.service_address import addresses, is_loopback
from allocator.service.log_config import config_of
from allocator.service.settings import METRICS_FOLDER, ServeSettings
from allocator.service.token_administration import Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp

log = logging.getLogger("allocator.service")

NEEDED = ("fastapi", "granian", "itsdangerous", "jinja2", "prometheus_client", "pythonjsonlogger")

FILES = 65_536
"""Raise the limit of open files to this: each connection of a client is one, and shells often allow only 1024."""
MAX_CONNECTIONS = 10_000
"""Connections of a worker; further ones wait until one is closed. Less where the process may open fewer files."""
MAX_HEAD = 16_384
"""Bytes of a request's head, and of what is read ahead."""
IDLE = 75
"""Seconds that a connection may be idle, or take for a head: more than proxies keep one by default (nginx 60), so that
they close it and not we, while a request is on its way."""
GRACE = 10
"""Seconds for running requests to finish when the service stops."""


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
    with TemporaryDirectory(prefix="allocator-") as folder:
        metrics = Path(folder) / "metrics"
        metrics.mkdir()
        os.environ[METRICS_FOLDER] = str(metrics)
        # At each start of a worker Pydantic would look for plugins in all packages that are installed.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")
        run(replace(given, folder=folder, console_key=token_bytes(32)))


def check_installed() -> None:
    for name in NEEDED:
        if find_spec(name) is None:
            raise InvalidSetting(
                f"the service needs {name}, which is not installed; pip install 'segment-allocator[server]'"
            )


def allow_many_files() -> int:
    """Raise the limit of open files; return how many connections a worker may have. A quarter is left for databases."""
    try:
        import resource
    except ImportError:  # on Windows
        return MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft * 3 // 4)


def run(settings: ServeSettings) -> None:
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces, SSLProtocols
    from granian.http import HTTP1Settings

    multiprocessing.set_start_method("spawn")  # a fork of this process would hold locks of its threads
    shown = settings.unix or f"{settings.host}:{settings.port}"
    try:
        with listening(settings) as (host, port):
            Granian(
                "allocator",
                host,
                port,
                uds=Path(settings.unix) if settings.unix else None,
                uds_permissions=0o660,  # to connect takes the right to write
                interface=Interfaces.ASGI,
                workers=settings.workers,
                http=HTTPModes.http1,
                websockets=False,
                backpressure=allow_many_files(),
                http1_settings=HTTP1Settings(header_read_timeout=IDLE * 1000, max_buffer_size=MAX_HEAD),
                log_dictconfig=config_of(settings.logs, settings.pasteable),
                ssl_cert=Path(settings.certificate) if settings.certificate else None,
                ssl_key=Path(settings.key) if settings.key else None,
                ssl_protocol_min=SSLProtocols.tls12,
                respawn_failed_workers=True,
                workers_kill_timeout=GRACE,
            ).serve(target_loader=partial(worker, settings), wrap_loader=False)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise InvalidSetting(f"cannot listen on {shown}: {reason}") from error


@contextmanager
def listening(settings: ServeSettings) -> Iterator[tuple[str, int]]:
    """Find the address and port, and hold them; remove the Unix socket of a service that was killed."""
    if settings.unix:
        remove_dead(Path(settings.unix))
        yield settings.host, settings.port
        return
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    address = socket.getaddrinfo(settings.host, settings.port, family, socket.SOCK_STREAM)[0][4]
    with socket.socket(family) as probe:
        # The workers share the port by SO_REUSEPORT, so another service on it would be no error of theirs.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        host, port = probe.getsockname()[:2]
    with socket.socket(family) as held:
        if sys.platform == "linux":
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind((host, port))
        yield host, port


def remove_dead(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            if path.is_socket():
                path.unlink(missing_ok=True)
        except OSError:  # nothing is there, or its queue is full
            pass


def worker(settings: ServeSettings) -> ASGIApp:
    """The application of one worker, as granian calls it."""
    from granian.utils.proxies import wrap_asgi_with_proxy_headers

    from allocator.service.app import application
    from allocator.service.metrics import begin_worker

    begin_worker()
    threading.Thread(target=end_with_parent, daemon=True).start()
    trusted = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")
    app: ASGIApp = wrap_asgi_with_proxy_headers(application(settings), trusted)
    return app


def end_with_parent() -> None:
    """Stop when the main process was killed: nobody would stop or replace this worker, and it holds the port."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def check_access(settings: ServeSettings) -> None:
    """Refuse to start without any token, unless --open serves this machine only."""
    place, is_local = settings.unix or settings.host, bool(settings.unix) or is_loopback(settings.host)
    if settings.is_open and not is_local:
        raise InvalidSetting(
            f"--open serves this machine only, and cannot listen on {place}; leave it out, and create a "
            "token with: allocator tokens create NAME"
        )
    with databases_at(settings.urls, settings.timeout, settings.shard_hosts) as databases:
        log.info("ids come from %s", databases.shown)
        tokens = Tokens(databases.lead)
        try:
            found, made = tokens.state()
        except DatabaseUnavailable as error:
            log.warning("cannot check yet whether a token exists: %s", error)
            return
        if not made and not settings.is_open:
            alone = "; or serve only this machine, without tokens, with: allocator serve --open" if is_local else ""
            raise InvalidSetting(
                f"no token exists in {databases.shown}, so nobody could use the service on {place}; create "
                f"one with: allocator tokens create NAME{alone}"
            )
        if settings.compat_token not in {"", *(token.name for token in found)}:
            raise InvalidSetting(
                f"--compat-token: {databases.shown} has no token named {settings.compat_token!a:.80}; create it with: "
                f"allocator tokens create {settings.compat_token:.80}"
            )
    if not made:
        log.warning(
            "no token exists: serving this machine only, without authentication. Create one with: "
            "allocator tokens create NAME"
        )
