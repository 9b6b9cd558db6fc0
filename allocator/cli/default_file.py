"""The default database, a file in the current folder, and the notes that announce it.

The notes matter because a misspelt variable leads to this file too, where ids begin at 1 again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path

import click

FILE = "allocator.db"
DEFAULT_URL = f"sqlite:///{FILE}"
URL_VARIABLE = "ALLOCATOR_DATABASE_URL"
COMMON_VARIABLE = "DATABASE_URL"
"""The name on many platforms. It may name the database of another program, so it is never read."""

WORDS = frozenset({"DATABASE", "DB", "DSN", "URI", "URL"})
CLOSE = 0.9
"""Similarity by difflib from which one name counts as a typo of the other."""

STATE = "allocator.default_file"
BEFORE, OPENED = "before", "opened"


def choose(context: click.Context) -> str:
    """Use the default file; return its URL."""
    context.meta[STATE] = {BEFORE: Path(FILE).exists(), OPENED: False}
    return DEFAULT_URL


def mark_opened() -> None:
    """Remember that the running command uses its database."""
    if state := click.get_current_context().meta.get(STATE):
        state[OPENED] = True


def take_notes(context: click.Context, environment: Collection[str], creates: bool = False) -> list[str]:
    """The notes about the default file, once; none if the command did not choose or did not open it.

    creates: the command is about to create the file.
    """
    state = context.meta.pop(STATE, None)
    if not state or not state[OPENED]:
        return []
    notes = [f"{name} is ignored; the variable is called {URL_VARIABLE}" for name in misspelt(environment)]
    if COMMON_VARIABLE in environment:
        notes.append(f'{COMMON_VARIABLE} is ignored; to use it, add --url "${COMMON_VARIABLE}"')
    if (file := Path(FILE).absolute()).exists() or creates:
        verb = "using" if state[BEFORE] else "creating" if creates else "created"
        notes.insert(0, f"{verb} {file}, because neither --url nor {URL_VARIABLE} names a database")
    return notes


def misspelt(environment: Iterable[str]) -> list[str]:
    """The names that are an abbreviation or a typo of `URL_VARIABLE`."""
    names = (URL_VARIABLE, f"{URL_VARIABLE}_FILE")
    return sorted(
        name
        for name in environment
        if is_abbreviated(name.upper()) or get_close_matches(name.upper(), names, n=1, cutoff=CLOSE)
    )


def is_abbreviated(name: str) -> bool:
    first, *others = name.split("_")
    return first == "ALLOCATOR" and bool(others) and WORDS.issuperset(others)
