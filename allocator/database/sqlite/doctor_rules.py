"""Rules on SQLite and its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.rules.findings import DANGER, NOTE, OUTAGE, Rule

MENDED = ((3, 44, 6), (3, 50, 7), (3, 51, 3))
"""The first fixed versions of three release lines; all later versions are fixed too."""


def loses_commits(version: tuple[int, ...]) -> bool:
    """Whether this version has the WAL reset bug of 3.7.0 to 3.51.2: see sqlite.org/wal.html."""
    line = next((mended for mended in MENDED if mended[:2] == version[:2]), MENDED[-1])
    return (3, 7, 0) <= version < line


def is_wal(facts: Mapping[str, Any]) -> bool:
    return facts.get("journal_mode") == "wal"


DANGERS = {
    "database-in-memory": Rule(
        lambda facts: facts.get("path") == "",
        "the database is in memory: it is lost when the process ends, and ids start from 1 again",
        "use a file: sqlite:///ids.db",
    ),
    "network-file-system": Rule(
        lambda facts: facts.get("networked"),
        "{path} is on a network file system ({networked}): two machines may get the same lock, and a flush may not "
        "reach the disk",
        "move the file to a local disk; for several machines, use a database server",
    ),
    "not-durable": Rule(
        lambda facts: is_wal(facts) and loses_commits(facts.get("version_number", (4,))),
        "SQLite {version} in WAL mode may lose commits in a rare race of two checkpoints",
        "upgrade to SQLite 3.51.3 or later (or 3.50.7, 3.44.6), or PRAGMA journal_mode = DELETE",
    ),
    "tag-collation": Rule(
        lambda facts: facts.get("collations"),
        "tags that differ only in case or blanks share one row: {collations}",
        "recreate the table without COLLATE, and copy the rows",
    ),
    "numbering-lost": Rule(
        lambda facts: facts.get("unnumbered"),
        "{unnumbered} lacks AUTOINCREMENT: numbers of deleted or replaced rows are issued again",
        "recreate the table with id INTEGER PRIMARY KEY AUTOINCREMENT, and copy the rows and sqlite_sequence",
    ),
    "numbering-behind": Rule(
        lambda facts: facts.get("behind"),
        "the counter is below a number it has issued: {behind}",
        "UPDATE sqlite_sequence SET seq = N WHERE name = 'allocator_ticket' (or 'allocator_node'), N above every id "
        "in use",
    ),
}
OUTAGES = {
    "file-not-writable": Rule(
        lambda facts: facts.get("unwritable"),
        "the current user cannot write {unwritable}",
        "chown or chmod it; SQLite must write to the file and its folder",
    ),
    "file-locked": Rule(
        lambda facts: facts.get("write_refused") and not facts.get("unwritable"),
        "no claim can write to {path}: {write_refused}",
        "end the process that locks it (fuser FILE), or shorten its transactions",
    ),
}
NOTES = {
    "sqlite-wal": Rule(
        is_wal,
        "journal_mode is wal: a power cut may lose commits of other programs that use synchronous=NORMAL on this "
        "file (the allocator's own connections use EXTRA)",
        "in other programs that write to the allocator's tables, PRAGMA synchronous = FULL",
    ),
}
RULES = {DANGER: DANGERS, OUTAGE: OUTAGES, NOTE: NOTES}
