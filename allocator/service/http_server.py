"""granian, embedded in this process.

It listens on a socket of ours, and ends without cutting a request.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server
from granian.utils.proxies import wrap_asgi_with_proxy_headers

from allocator.errors import InvalidSetting
from allocator.service.log_config import config_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from allocator.service.hot_path import HotPath
    from allocator.service.settings import ServeSettings

log = logging.getLogger("allocator.service")

FILES = 65_536
"""Raise the limit of open files to this: each connection of a client is one, and shells often allow only 1024."""
BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted."""
MAX_CONNECTIONS = 10_000
"""Further connections wait until one is closed. Less where the process may open fewer files."""
MAX_HEAD = 16_384
"""Bytes of a request's head, and of what is read ahead."""
IDLE = 75
"""Seconds that a connection may be idle, or take for a head: more than proxies keep one by default (nginx 60), so that
they close it and not we, while a request is on its way."""

DRAIN = 1.0
"""Seconds between the last new connection and the end, in which kept connections hear of it by an answer. At the end
granian closes those that are idle, and a request may be on its way."""
GRACE = 10
"""Seconds for running requests to finish after that."""
FORWARDED_FOR = b"x-forwarded-for"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class HttpServer(Server):
    """granian's server for this process, on a listening socket that it did not open."""

    def __init__(self, application: HotPath, listener: socket.socket, settings: ServeSettings) -> None:
        super().__init__(
            behind_proxies(application),
            interface=Interfaces.ASGI,
            http=HTTPModes.http1,
            websockets=False,
            backpressure=allow_many_files(),
            http1_settings=HTTP1Settings(header_read_timeout=IDLE * 1000, max_buffer_size=MAX_HEAD),
            log_level=LogLevels.error,  # it warns at each start that embedding is experimental
            log_dictconfig=config_of(settings.log_format),
            ssl_cert=Path(settings.certificate) if settings.certificate else None,
            ssl_key=Path(settings.key) if settings.key else None,
            ssl_protocol_min=SSLProtocols.tls12,
        )
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
        self._listener = listener.detach()  # granian closes it

    def _init_shared_socket(self) -> None:
        """Give granian the socket, in place of one that it opens: it would share each port with other processes."""
        backlog = (BACKLOG,) if sys.platform == "linux" else ()
        self._shd = SocketHolder(self._listener, False, *backlog)  # type: ignore[assignment, call-arg]

    def stop_accepting(self) -> None:
        """Close the socket under granian, by one that nobody can connect to."""
        with socket.create_server(("127.0.0.1", 0)) as nobodys:
            nobodys.setblocking(False)
            os.dup2(nobodys.fileno(), self._listener, inheritable=False)


def behind_proxies(application: HotPath) -> ASGIApp:
    """Let a trusted proxy say whose request it forwards. To look at the address of each client costs half an id."""
    told = wrap_asgi_with_proxy_headers(application, os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1"))

    def answer(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_forwarded = FORWARDED_FOR in dict(scope.get("headers", ()))
        return (told if is_forwarded else application)(scope, receive, send)

    return answer


async def run(application: HotPath, listener: socket.socket, settings: ServeSettings) -> None:
    """Serve until a signal; then accept no more, end kept connections by their next answer, and finish what runs."""
    address = address_of(listener, is_https=bool(settings.certificate))
    try:
        server = HttpServer(application, listener, settings)
    except OSError as error:
        raise InvalidSetting(f"cannot use --certificate and --key: {error.strerror or error}") from error
    signals = asyncio.Queue[int]()
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as SIGHUP is under nohup
            asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
    serving, asked = asyncio.create_task(server.serve()), asyncio.create_task(signals.get())
    started = asyncio.create_task(application.has_started.wait())
    await asyncio.wait((serving, asked, started), return_when=asyncio.FIRST_COMPLETED)
    if started.done() and not serving.done():
        gc.freeze()  # what every request needs: else a full collection goes through it, and answers nobody for 0.1 s
        log.info("listening on %s", address)
    await asyncio.wait((serving, asked), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()  # the error that ended it
        return
    log.info("%s: accepting no more connections, and ending", signal.Signals(asked.result()).name)
    application.is_ending = True
    server.stop_accepting()
    with suppress(TimeoutError):  # a second signal ends the wait
        await asyncio.wait_for(signals.get(), DRAIN)
    server.stop()  # type: ignore[no-untyped-call]
    try:
        await asyncio.wait_for(serving, GRACE)
    except TimeoutError:
        log.warning("requests were still running after %s seconds", GRACE)


def allow_many_files() -> int:
    """Raise the limit of open files; return how many connections there may be. A quarter is left for databases."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft * 3 // 4)


def address_of(listener: socket.socket, *, is_https: bool) -> str:
    host, port = listener.getsockname()[:2]
    return f"{'https' if is_https else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        address = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4]
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=":" in host)
    except OSError as error:
        raise InvalidSetting(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
