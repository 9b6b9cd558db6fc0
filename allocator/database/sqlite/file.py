"""The file of a SQLite database: its path, its one name, and a lock that other opens of the file cannot drop.

SQLite's own locks are POSIX locks, which belong to the process: the process loses them all when it closes any other
open of the file, as `shutil.copy` and a checksum do. Two processes then write at once, and claim the same ids. A lock
by flock() belongs to one open of the folder, which nothing else closes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from time import monotonic, sleep
from typing import Any

from allocator.database.driver_errors import LOCKED
from allocator.errors import DatabaseRefused, DatabaseUnavailable
from allocator.runtime.forks import in_child
from allocator.runtime.mounts import MOUNTS, mounts_of

try:
    import fcntl
except ImportError:  # on Windows a lock belongs to the handle, so SQLite's own are enough
    fcntl = None  # type: ignore[assignment]

PAUSE, MAX_PAUSE = 0.0005, 0.02
"""Seconds before the first and the last retries for a lock that another process or thread holds."""

Inode = tuple[int, int]

held: dict[tuple[int, str], int] = {}
"""The locked folders, by thread and path. What interrupts a thread in its verb runs under the same lock."""


def path_of(connection: Any) -> str:
    """The absolute path without symbolic links; empty for a database in memory."""
    with closing(connection.execute("PRAGMA database_list")) as listed:  # reads nothing of the file
        path = next((str(path) for _, name, path in listed.fetchall() if name == "main"), "")
    return os.path.realpath(path) if path else ""


def files_of(path: str) -> tuple[Inode, Inode | None]:
    """The inodes of the file and of its write-ahead log."""
    file = inode_of(path)
    if file is None:
        raise DatabaseUnavailable(f"there is no file {path}: it was moved or deleted; put it back")
    return file, inode_of(f"{path}-wal")


def inode_of(path: str) -> Inode | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # a claim asks, and a Path is six times as slow
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def check_name(path: str) -> None:
    """Refuse a file with two names: SQLite names journal and log after the one in use, and misses those of others."""
    links = os.stat(path).st_nlink  # noqa: PTH116
    if links > 1:
        raise DatabaseRefused(
            f"{path} has {links} hard links, and SQLite finds the journal of one name alone: ids would repeat; remove "
            f"the others, which this lists: find / -xdev -samefile {path}"
        )
    with suppress(OSError):  # there is no /proc but on Linux
        mounts = mounts_of(MOUNTS.read_text())
        if any(one.folder == path for one in mounts):
            raise DatabaseRefused(
                f"{path} is mounted as a single file, so its journal is not beside the file that others open: ids "
                "would repeat; mount its folder instead"
            )


@contextmanager
def alone(path: str, timeout: float) -> Iterator[None]:
    """Keep all other threads and processes of the allocator out of the file's folder."""
    key = threading.get_ident(), os.path.dirname(path)  # noqa: PTH120
    if fcntl is None or not path or key in held:
        yield
        return
    folder = held[key] = os.open(key[1], os.O_RDONLY)
    try:
        if not wait(folder, timeout):
            raise DatabaseUnavailable(LOCKED.format(where=path, waited=timeout))
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)  # a child that was forked meanwhile has it open too
        del held[key]
        os.close(folder)


def wait(folder: int, timeout: float) -> bool:
    end, pause = monotonic() + timeout, PAUSE
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if monotonic() + pause > end:
            return False
        sleep(pause)
        pause = min(2 * pause, MAX_PAUSE)


def drop() -> None:
    """In a forked child: the parent's locks must end with the parent."""
    while held:
        os.close(held.popitem()[1])


in_child(drop)
