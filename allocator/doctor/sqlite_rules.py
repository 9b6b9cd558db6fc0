"""From what SQLite and the file system say to findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.rules.findings import DANGER, NOTE, OUTAGE, Rule

MENDED = ((3, 44, 6), (3, 50, 7), (3, 51, 3))
"""The first versions, of three lines, in which a reset of the WAL loses no commit; from the last one on, all."""


def loses_commits(version: tuple[int, ...]) -> bool:
    """Whether this version has the bug of the reset WAL, of 3.7.0 to 3.51.2: see sqlite.org/wal.html."""
    line = next((mended for mended in MENDED if mended[:2] == version[:2]), MENDED[-1])
    return (3, 7, 0) <= version < line


def is_wal(facts: Mapping[str, Any]) -> bool:
    return facts.get("journal_mode") == "wal"


RULES = (
    Rule(
        "database-in-memory",
        DANGER,
        lambda facts: facts.get("path") == "",
        "the database is in memory: at the end of the process it is forgotten, and ids begin with 1 again",
        "give a file: sqlite:///ids.db",
    ),
    Rule(
        "network-file-system",
        DANGER,
        lambda facts: facts.get("networked"),
        "{path} is on a file system of the kind {networked}: its locks may be granted to two machines at once, and a "
        "flush "
        "may reach no disk",
        "move the file to a disk of this machine; for several machines, use a server",
    ),
    Rule(
        "file-linked-twice",
        DANGER,
        lambda facts: facts.get("links", 1) > 1,
        "{path} has {links} names: a crash under one leaves a journal that is not found under the other",
        "remove the other hard links: find / -xdev -samefile FILE",
    ),
    Rule(
        "sqlite-loses-commits",
        DANGER,
        lambda facts: is_wal(facts) and loses_commits(facts.get("version_number", (4,))),
        "SQLite {version} in WAL mode may lose commits in a rare race of two checkpoints",
        "SQLite 3.51.3 or later (or 3.50.7, 3.44.6), or PRAGMA journal_mode = DELETE",
    ),
    Rule(
        "sqlite-wal",
        NOTE,
        is_wal,
        "journal_mode is wal: what another program commits to this file with synchronous=NORMAL may be lost at a "
        "power cut "
        "(the allocator's own connections use EXTRA)",
        "let programs that write to the allocator's tables set PRAGMA synchronous = FULL",
    ),
    Rule(
        "file-not-writable",
        OUTAGE,
        lambda facts: facts.get("unwritable"),
        "{unwritable} cannot be written to by the user that looks",
        "chown or chmod it; SQLite needs to write the file and its folder",
    ),
    Rule(
        "file-locked",
        OUTAGE,
        lambda facts: facts.get("write_refused") and not facts.get("unwritable"),
        "no claim can write to {path}: {write_refused}",
        "end whatever holds it (fuser FILE), or make its transactions shorter",
    ),
    Rule(
        "tag-collation",
        DANGER,
        lambda facts: facts.get("collations"),
        "tags that differ in case or blanks are taken for one: {collations}",
        "make the table anew without COLLATE, and copy the rows",
    ),
    Rule(
        "numbering-lost",
        DANGER,
        lambda facts: facts.get("unnumbered"),
        "{unnumbered} is without AUTOINCREMENT: the number of a row that was deleted or replaced is given again",
        "make the table anew with id INTEGER PRIMARY KEY AUTOINCREMENT, and copy the rows and sqlite_sequence",
    ),
    Rule(
        "numbering-behind",
        DANGER,
        lambda facts: facts.get("behind"),
        "the counter was set back: {behind}",
        "UPDATE sqlite_sequence SET seq = N WHERE name = 'allocator_ticket' (or 'allocator_node'), N above every id "
        "in use",
    ),
)
