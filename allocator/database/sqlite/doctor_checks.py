"""What the doctor checks on SQLite and its file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sqlalchemy import Connection

from allocator.database.checks import GUARD, Check
from allocator.database.dialect import Dialect, undo
from allocator.database.sqlite.file import path_of
from allocator.runtime.mounts import MOUNTS, is_networked, mount_of, mounts_of
from allocator.schemes.shared.findings import DANGER, Finding


def local(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    path = path_of(connection.connection.dbapi_connection)
    with suppress(OSError):  # there is no /proc/mounts but on Linux
        mount = mount_of(path, mounts_of(MOUNTS.read_text()))
        if mount and is_networked(mount.kind):
            yield Finding(
                "network-file-system",
                DANGER,
                f"{path} is on a network file system ({mount.kind}): two machines may get the same lock, and a flush "
                "may not reach the disk",
                "move the file to a local disk; for several machines, use a database server",
            )


def writes(connection: Connection, dialect: Dialect) -> list[Finding]:
    """Write a page and take it back: then SQLite has locked the file, and made a journal in its folder."""
    connection.exec_driver_sql(dialect.begin)
    try:
        connection.exec_driver_sql("UPDATE allocator_shard SET id = id")
    finally:
        undo(connection)
    return []


CHECKS = (
    GUARD,
    Check("where the file is", local),
    Check("whether ids can be claimed", writes, of_tables=True, fails="claims-refused"),
)
