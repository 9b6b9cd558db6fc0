"""SQLite, the embedded default: only what differs, as the file, its one name, and its lock.

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
from threading import get_ident
from time import monotonic, sleep
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.exc import TimeoutError as PoolTimeout

from allocator.database import fork_gate
from allocator.database.dialect import NOWHERE, Dialect, Words
from allocator.database.tables import CLAIMED
from allocator.errors import DatabaseRefused, DatabaseUnavailable, InvalidDatabase
from allocator.runtime.forks import in_child
from allocator.runtime.mounts import MOUNTS, mounts_of
from allocator.runtime.threads import beside

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

statements: list[int] = []
"""The thread of the last statement: what others open, as for an audit, is theirs."""
left: list[Any] = []
"""The connection of the last statement, closed; open if an exception that was sent to its thread came before that."""
parents: list[Any] = []
"""In a forked child, what was left at the fork: closing it would end a transaction of the parent's."""
checked: set[str] = set()
"""The files whose mounts `check_name` has looked at in this process."""

BUSY_SECONDS = 0.02
"""For short transactions of others, while `alone` keeps all of ours out. `Database.run` waits for longer ones."""
LEGACY = -1
"""`autocommit` of a connection whose transactions SQLAlchemy controls: sqlite3.LEGACY_TRANSACTION_CONTROL, of 3.12."""
GUARDS = ("allocator_guard_fall", "allocator_guard_rename", "allocator_guard_delete", "allocator_guard_replace")

CLOCK = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
KEPT = text("SELECT max_value FROM allocator_segment WHERE tag = :name")
FAMILIES = ("SQLITE_CANTOPEN", "SQLITE_CORRUPT", "SQLITE_READONLY")
"""The codes that begin so, such as SQLITE_READONLY_DIRECTORY, have one meaning."""
MENDS = (
    "(SELECT group_concat('DROP TRIGGER \"' || replace(name, '\"', '\"\"') || '\"', '; ') FROM sqlite_master "
    f"WHERE type = 'trigger' AND tbl_name COLLATE NOCASE IN {CLAIMED} "
    f"AND NOT (tbl_name = 'allocator_segment' AND name IN {GUARDS}))"
)
"""See `Words.mends`."""


class SQLite(Dialect):
    name = "sqlite"
    embedded = True
    begin = "BEGIN IMMEDIATE"
    words = Words(CLOCK, MENDS)

    def engine_args(self, driver: str, timeout: float) -> dict[str, Any]:
        return {"connect_args": {"timeout": BUSY_SECONDS, "check_same_thread": False}}

    def on_connect(
        self, engine: Engine, file: str | None, is_given: bool, timeout: float, connection: Any, record: Any
    ) -> None:
        path = os.path.realpath(file) if file else ""
        if is_given:
            free(connection)
        if (is_given or not path) and (opened := path_of(connection)) != path:
            connection.close()
            raise InvalidDatabase(
                f"the URL of this database names {path or 'no file'}, and {opened or 'memory'} is opened instead; "
                "give the path of the file in a URL, as in sqlite:////srv/ids.db"
            )
        # A commit must survive a power cut. That needs FULL in WAL mode, and EXTRA with a rollback journal.
        connection.execute("PRAGMA synchronous = EXTRA").close()
        if path:
            if get_ident() in statements:
                left.append(connection)
            check_name(path)
        record.info.update(path=path, allocator_run=f"'{run_of_file(path)}'" if path else NOWHERE)

    @contextmanager
    def alone(self, file: str | None, end: float) -> Iterator[None]:
        """Keep forks and our other threads out of all files, and processes out of this one; forks go on meanwhile.

        A database in memory has no other processes.
        """
        path = os.path.realpath(file) if file else ""  # all processes must lock one file
        while True:
            taken: list[bool] = []
            wait = partial(fork_gate.lock.acquire, timeout=max(0.0, end - monotonic()))  # a statement may hang
            try:
                taken.extend(map(wait, (True,)))  # one step, in C: no exception comes between the lock and the list
                if taken != [True]:
                    raise PoolTimeout
                statements[:] = [get_ident()]
                while left and path:
                    with suppress(Exception):
                        left[-1].close()
                    left.pop()
                with locked(f"{path}{LOCK}" if path else "") as is_ours:
                    if is_ours:
                        yield
                        return
            finally:
                if taken == [True]:
                    fork_gate.lock.release()
            if monotonic() + PAUSE > end:
                raise PoolTimeout
            sleep(PAUSE)

    def leaves_open(self, driver_connection: Any) -> bool:
        return driver_connection.in_transaction is True

    def code(self, error: BaseException) -> str:
        name = str(getattr(error, "sqlite_errorname", ""))
        return next((family for family in FAMILIES if name.startswith(family)), name)

    def server_runs(self, connection: Connection) -> Iterator[tuple[str, Dialect]]:
        path = path_of(connection.connection.dbapi_connection)
        yield f"'{run_of_file(path)}'" if path else NOWHERE, self

    def claim(self, connection: Connection, claim: TextClause, parameters: dict[str, object], name: str) -> int | None:
        end = connection.execute(claim, parameters).scalar_one_or_none()
        return end if end is None else kept(connection, name, end)


def leave_to_parent() -> None:
    parents.extend(left)
    left.clear()


in_child(leave_to_parent)


def free(connection: Any) -> None:
    """Make a connection of the user's engine one of ours."""
    connection.commit()
    try:
        beside(connection.commit)  # the driver checks the thread of each call
    except Exception as error:
        connection.close()
        raise InvalidDatabase(
            "a connection of this engine is for the thread that made it; give the URL, or make the engine with "
            "connect_args={'check_same_thread': False}"
        ) from error
    if getattr(connection, "autocommit", LEGACY) != LEGACY:
        # False keeps a transaction open, in which no PRAGMA can be set; with True the driver ignores commit().
        connection.autocommit = True  # ends that transaction
        connection.autocommit = LEGACY
    connection.execute(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS:.0f}").close()


def kept(connection: Connection, name: str, end: int) -> int:
    """`end`, if the commit that wrote it is still there.

    A process whose locks were lost looks dead: any program that opens the file then takes its journal for one that a
    crash left, and undoes the commit. Afterwards the journal is gone, and this read waits for whoever has it.
    """
    value = connection.execute(KEPT, {"name": name}).scalar_one_or_none()
    if value is None or value < end:
        raise DatabaseUnavailable(
            f"{name!r}: {connection.info['path']} holds {value} right after {end} was committed, and no id was issued; "
            "another program undid it: give the ids a file of their own; or a trigger did: run allocator db check"
        )
    return end


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
def locked(path: str) -> Iterator[bool]:
    """Hold the lock of this file; False if another has it, and True where there is none to take."""
    file = file_of(path) if fcntl and path else None
    if file is None:
        yield True
        return
    try:
        yield take_lock(file, path)
    finally:
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


def take_lock(file: int, path: str) -> bool:
    """Take the lock; False if another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise DatabaseRefused(
            f"{path} cannot be locked: {error.strerror}; put it on a file system that has flock(), as local ones have"
        ) from error
    return True
