"""The file of a SQLite database: its path, its one name, and a lock that other opens of the file cannot drop.

SQLite's own locks are POSIX locks, which belong to the process: the process loses them all when it closes any other
open of the file, as `shutil.copy` and a checksum do. Two processes then write at once, and claim the same ids. A lock
by flock() belongs to one open of the folder, which nothing else closes.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from struct import unpack_from
from time import monotonic, sleep
from typing import Any

from sqlalchemy.exc import TimeoutError as PoolTimeout

from allocator.errors import DatabaseRefused, DatabaseUnavailable
from allocator.runtime.forks import in_child
from allocator.runtime.mounts import MOUNTS, mounts_of

try:
    import fcntl
except ImportError:  # on Windows a lock belongs to the handle, so SQLite's own are enough
    fcntl = None  # type: ignore[assignment]

try:
    from ctypes import CDLL, c_char

    STATX: Any = CDLL(None).statx
    ANSWER = c_char * 256
except (ImportError, OSError, TypeError, AttributeError):  # not Linux, or musl before 1.2.5
    STATX = None
AT_FDCWD, BIRTH, BIRTH_AT = -100, 0x800, 80
"""Of statx(): a path as of the working folder; the bit for a birth, and the place of the birth in the answer."""

PAUSE = 0.002
"""Seconds between tries to get the lock. They do not grow: who waits longest would come last."""

DEVICE_BITS = 20
"""The number of a device is shorter: 12 bits of its major number and 8 of its minor one, unless there are over 256."""

folders: set[int] = set()
"""The folders that are open for a lock."""
held: set[tuple[int, str]] = set()
"""Threads and the folders that they have locked. What interrupts a thread in its verb runs under the same lock."""


def path_of(connection: Any) -> str:
    """The absolute path without symbolic links; empty for a database in memory."""
    with closing(connection.execute("PRAGMA database_list")) as listed:  # reads nothing of the file
        path = next((str(path) for _, name, path in listed.fetchall() if name == "main"), "")
    return os.path.realpath(path) if path else ""


def run_of_file(path: str) -> str:
    """The identity of a file, `inode@volume+birth`: each new volume repeats inodes, and a new file may get an old one.

    The volume is the part of the file system's UUID that statvfs() tells; left out where it is the number of a device,
    which may change at a reboot: macOS has nothing else, nor have some file systems of Linux, such as xfs.

    The birth, in nanoseconds, is left out where nothing tells it. Asking for the inode's generation would open the
    file, and closing it again would drop SQLite's locks. Elsewhere than on Linux files rarely get an inode again.
    """
    run = f"{os.stat(path).st_ino:x}"  # noqa: PTH116
    if sys.platform != "linux":
        return run
    volume = os.statvfs(path).f_fsid & 0xFFFFFFFF  # musl tells no more, and the same file is the same in each container
    if volume >> DEVICE_BITS:
        run += f"@{volume:x}"
    if STATX is not None:
        told = ANSWER()
        if STATX(AT_FDCWD, os.fsencode(path), 0, BIRTH, told) == 0 and unpack_from("I", told)[0] & BIRTH:
            seconds, nanoseconds = unpack_from("qI", told, BIRTH_AT)
            run += f"+{10**9 * seconds + nanoseconds:x}"
    return run


def is_perhaps(was: str, run: str) -> bool:
    """Whether two runs are of one file as far as they tell: one process may learn its birth, and another may not."""
    file, plus, _ = was.partition("+")
    other, its_plus, _ = run.partition("+")
    return file == other and plus != its_plus


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
def alone(path: str, end: float) -> Iterator[None]:
    """Keep all other threads and processes of the allocator out of the file's folder."""
    if is_alone(path):
        yield
        return
    key = key_of(path)
    with opened(key[1]) as folder:
        try:
            if folder is not None:
                lock(folder, end)
            held.add(key)
            yield
        finally:
            held.discard(key)


def is_alone(path: str) -> bool:
    return not path or key_of(path) in held


def key_of(path: str) -> tuple[int, str]:
    return threading.get_ident(), os.path.dirname(path)  # noqa: PTH120


@contextmanager
def opened(path: str) -> Iterator[int | None]:
    """Open a folder for a lock; None where it may be used but not listed. SQLite says which one is missing."""
    folder = None
    try:
        try:
            folder = os.open(path, os.O_RDONLY) if fcntl else None
        except (FileNotFoundError, PermissionError):
            pass
        except OSError as error:
            if error.errno is None:  # raised by a signal handler, as TimeoutError often is
                raise
            raise DatabaseUnavailable(f"{path} cannot be locked: {error.strerror}") from error
        if folder is not None:
            folders.add(folder)
        yield folder
    finally:
        if folder in folders:
            try:
                fcntl.flock(folder, fcntl.LOCK_UN)  # a child that was forked meanwhile has it open too
            finally:
                folders.discard(folder)
                os.close(folder)


def lock(folder: int, end: float) -> None:
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() + PAUSE > end:
                raise PoolTimeout from None
        except OSError as error:
            if error.errno is None:  # raised by a signal handler, as TimeoutError often is
                raise
            return  # the file system locks no folders
        else:
            return
        sleep(PAUSE)


def drop() -> None:
    """In a forked child: the parent's locks must end with the parent."""
    held.clear()
    while folders:
        os.close(folders.pop())


in_child(drop)
