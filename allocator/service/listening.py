"""The socket that the service listens on: a host and port, or a Unix socket."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from allocator.errors import InvalidSetting
from allocator.service.settings import ServeSettings

if TYPE_CHECKING:
    import uvicorn

log = logging.getLogger("allocator.service")

OWNER_AND_GROUP = 0o117
"""The umask of a Unix socket: owner and group may connect, which needs the right to write."""
BACKLOG = 2048
"""Connections that may wait to be accepted: uvicorn's default."""


@contextmanager
def listening(config: uvicorn.Config, settings: ServeSettings) -> Iterator[socket.socket]:
    if not settings.unix:
        yield bind(config, settings)
        return
    path = Path(settings.unix)
    bound = bind_unix(path)
    made = identity(path)
    log.info("listening on the Unix socket %s", path)
    try:
        yield bound
    finally:
        with suppress(OSError):
            if identity(path) == made:  # and not that of a later service
                path.unlink()


def bind(config: uvicorn.Config, settings: ServeSettings) -> socket.socket:
    try:
        return config.bind_socket()
    except SystemExit:
        place = f"{settings.host}:{settings.port}"
        raise InvalidSetting(f"cannot listen on {place}; the line above has the reason") from None


def bind_unix(path: Path) -> socket.socket:
    """Listen on a socket that its owner and group may use. It replaces the file of a service that died.

    It listens at once, seconds before the workers accept: else a second service would take this one for dead.
    """
    # `bind` makes the file: with a chmod afterwards anybody could connect in between.
    before = os.umask(OWNER_AND_GROUP)
    try:
        if path.is_socket() and not answers(path):
            path.unlink(missing_ok=True)
        with ExitStack() as stack:
            bound = stack.enter_context(socket.socket(socket.AF_UNIX))
            bound.bind(str(path))
            bound.listen(BACKLOG)
            stack.pop_all()
    except OSError as error:
        raise InvalidSetting(f"cannot listen on {path}: {error.strerror or error}") from error
    finally:
        os.umask(before)
    bound.set_inheritable(True)
    return bound


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:  # its queue is full
            return True
        return True


def identity(path: Path) -> tuple[int, int]:
    """The inode and its time: file systems give the inode of a removed file to the next one."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns
