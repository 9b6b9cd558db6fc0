"""The file of SQLite: which one it is, and whether an older copy was put in its place.

A file that was moved or copied has another inode, though a number that is free is given again at once. One that was
overwritten keeps it, and what is beside the contents: so a token and the newest claim are noted in an extended
attribute of the file, where the system has such. A copy that lacks any claim lacks the newest one, and shows itself by
that; a file that is new has no note. Both get a new token. This is looked at before every claim, since what is open may
be overwritten, and the next claim of another process would cover that up.

Not noticed: a copy that brings its own note along (`cp -a`) into the same inode.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple
from zlib import crc32

from allocator.errors import DatabaseUnavailable

ATTRIBUTE = "user.allocator"
HAS_ATTRIBUTES = hasattr(os, "setxattr")


class Replaced(Exception):
    """Another file has this name by now, and what is connected would still write the old one."""


class Note(NamedTuple):
    """`token` is another one when the file went back; the newest claim was of `tag`, up to `end`."""

    token: str = ""
    end: int = 0
    tag: str = ""


def run_of(connection: Any, info: dict[Any, Any]) -> str:
    """What this file is, as an SQL expression; `info` stays with the connection, for `note_claim`."""
    if "file" not in info:
        info["file"] = path_of(connection)
    path = info["file"]
    if not path:
        return "''"
    inode = Path(path).stat().st_ino
    if info.setdefault("inode", inode) != inode:
        raise Replaced(path)
    found = read(path)
    if found is None:
        found = begun(path)
    elif found.tag and claimed(connection, found.tag) < found.end:
        found = after(found)
        write(path, found)
    info["token"] = found.token
    return f"'{inode:x}-{found.token}'"


def begun(path: str) -> Note:
    """The first note of a file, by us or by another process that was quicker; without a token where none can be."""
    write(path, Note(token_hex(4)), only_first=True)
    return read(path) or Note()


def after(lost: Note) -> Note:
    """The note of a file that lacks the claim of another one; the same for all processes that see it at once."""
    return Note(f"{crc32(' '.join(map(str, lost)).encode()):08x}")


def note_claim(info: dict[Any, Any], tag: str, end: int) -> None:
    """Not over the token of a process that has seen another file in its place since."""
    if info.get("file") and (read(info["file"]) or Note()).token == info["token"]:
        write(info["file"], Note(info["token"], end, tag))


def path_of(connection: Any) -> str:
    with closing(connection.execute("PRAGMA database_list")) as listed:
        return next((str(path) for _, name, path in listed.fetchall() if name == "main"), "")


def claimed(connection: Any, tag: str) -> int:
    """How far a tag is claimed by what the file says, 0 where it does not even know it."""
    try:
        with closing(connection.execute("SELECT max_value FROM allocator_segment WHERE tag = ?", (tag,))) as found:
            row = found.fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return 0
        raise DatabaseUnavailable(f"{path_of(connection)} cannot be looked at: {error}") from error
    return row[0] if row else 0


def read(path: str) -> Note | None:
    """None for a file that was never noted, or where there are no attributes."""
    if not HAS_ATTRIBUTES:
        return None
    try:
        token, end, tag = os.getxattr(path, ATTRIBUTE).decode().split(" ")
        return Note(token, int(end), tag)
    except (OSError, ValueError):
        return None


def write(path: str, note: Note, *, only_first: bool = False) -> None:
    if not HAS_ATTRIBUTES:
        return
    with suppress(OSError):  # not on this file system, or it is full: an older copy in the same inode goes unnoticed
        flags = os.XATTR_CREATE if only_first else 0
        os.setxattr(path, ATTRIBUTE, " ".join(map(str, note)).encode(), flags)
