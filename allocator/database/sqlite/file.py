"""The file of a SQLite database: its path, its one name, and a lock that other opens of the file cannot drop.

SQLite's own locks are POSIX locks, which belong to the process: the process loses them all when it closes any other
open of the file, as `shutil.copy` and a checksum do. Two processes then write at once, and claim the same ids. A lock
by flock() belongs to one open of another file beside it, which nothing else closes. It is never deleted: who has
deleted one would not keep out who holds it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from struct import unpack_from
from time import monotonic, sleep
from typing import Any

from sqlalchemy.exc import TimeoutError as PoolTimeout

from allocator.database.sqlite import fork_gate
from allocator.errors import DatabaseRefused, DatabaseUnavailable
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

LOCK = "-lock"
"""Follows the name of the file."""

checked: set[str] = set()
"""The files whose mounts `check_name` has looked at in this process."""


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


def check_name(path: str) -> None:
    """Refuse a file with two names: SQLite names journal and log after the one in use, and misses those of others.

    Mounts are looked at once a process; names each time, since a link may be made at any time.
    """
    links = os.stat(path).st_nlink  # noqa: PTH116
    if links > 1:
        raise DatabaseRefused(
            f"{path} has {links} hard links, and SQLite finds the journal of one name alone: ids would repeat; remove "
            f"the others, which this lists: find / -xdev -samefile {path}"
        )
    if path in checked:
        return
    with suppress(OSError):  # there is no /proc but on Linux
        mounts = mounts_of(MOUNTS.read_text())
        if any(one.folder == path for one in mounts):
            raise DatabaseRefused(
                f"{path} is mounted as a single file, so its journal is not beside the file that others open: ids "
                "would repeat; mount its folder instead"
            )
    checked.add(path)


@contextmanager
def alone(path: str, end: float) -> Iterator[None]:
    """Keep forks, and all other threads and processes of the allocator, out of the file; forks go on while this waits.

    `path` is absolute and without symbolic links: all processes must lock one file.
    """
    while True:
        taken: list[bool] = []
        wait = partial(fork_gate.lock.acquire, timeout=max(0.0, end - monotonic()))  # a statement may hang
        try:
            taken.extend(map(wait, (True,)))  # one step, in C: no exception comes between the lock and the list
            if taken != [True]:
                raise PoolTimeout
            with opened(f"{path}{LOCK}") as file:
                if is_ours(file, path):
                    yield
                    return
        finally:
            if taken == [True]:
                fork_gate.lock.release()
        if monotonic() + PAUSE > end:
            raise PoolTimeout
        sleep(PAUSE)


@contextmanager
def opened(path: str) -> Iterator[int | None]:
    """Open the file for the lock; None where there can be none."""
    file = file_of(path) if fcntl else None
    try:
        yield file
    finally:
        if file is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_UN)  # a child that C code forked meanwhile has it open too
            except OSError:
                pass
            finally:
                os.close(file)


def file_of(path: str) -> int | None:
    refused = OSError()
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):  # to read another user's is enough, but on NFS
        try:
            return os.open(path, flags, 0o666)
        except OSError as error:
            refused = error
    if isinstance(refused, FileNotFoundError):
        return None  # it cannot be made, nor then a journal: SQLite says why
    kind = DatabaseRefused if isinstance(refused, PermissionError) else DatabaseUnavailable
    raise kind(
        f"{path} cannot be opened: {refused.strerror}; check that its folder exists, and that this user may write both"
    )


def is_ours(file: int | None, path: str) -> bool:
    """Whether the lock is taken now, or there is none to take."""
    if file is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise DatabaseRefused(
            f"{path} cannot be locked: {error.strerror}; put it on a file system that has flock(), as local ones have"
        ) from error
    return True
