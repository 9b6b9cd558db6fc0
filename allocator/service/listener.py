"""The socket on which the service listens: opened here, or kept by a supervisor across restarts."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.errors import InvalidSetting

if TYPE_CHECKING:
    from allocator.service.settings import ServeSettings

BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted."""
HANDED_OVER = 3
"""The descriptor of the first socket, by the protocol of systemd (sd_listen_fds)."""


def handed_over() -> socket.socket | None:
    """The listening socket of a supervisor that speaks systemd's protocol, or None."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    if (count := os.environ.get("LISTEN_FDS")) != "1":
        raise InvalidSetting(f"a supervisor can hand over one socket, but LISTEN_FDS is {count!a:.20}")
    return socket.socket(fileno=HANDED_OVER)


def place_of(listener: socket.socket) -> dict[str, Any]:
    """The settings that describe where a socket listens."""
    name = listener.getsockname()
    return {"uds": os.fsdecode(name)} if is_unix(listener) else {"uds": "", "host": name[0], "port": name[1]}


def is_unix(listener: socket.socket) -> bool:
    return listener.family == socket.AF_UNIX


def address_of(listener: socket.socket, *, is_https: bool) -> str:
    place = place_of(listener)
    if place["uds"]:
        return f"unix://{place['uds']}"
    host = f"[{place['host']}]" if ":" in place["host"] else place["host"]
    return f"{'https' if is_https else 'http'}://{host}:{place['port']}"


@contextmanager
def listening(settings: ServeSettings) -> Iterator[socket.socket]:
    """Listen where the settings say. The file of a Unix socket is removed at the end, and that of a killed service."""
    try:
        listener = at_path(Path(settings.uds)) if settings.uds else at_port(settings.host, settings.port)
    except OSError as error:
        shown = settings.uds or f"{settings.host}:{settings.port}"
        raise InvalidSetting(f"cannot listen on {shown}: {error.strerror or error}") from error
    try:
        yield listener
    finally:
        listener.close()
        if settings.uds:
            remove_dead(Path(settings.uds))


def at_port(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4]
    return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=":" in host)


def at_path(path: Path) -> socket.socket:
    remove_dead(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o660)  # to connect takes the right to write
    listener.listen(BACKLOG)
    return listener


def remove_dead(path: Path) -> None:
    """Remove the file of a socket on which nobody listens."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            if path.is_socket():
                path.unlink(missing_ok=True)
        except OSError:  # nothing is there, or its queue is full
            pass
