"""The database of a command that names none: a file in the current folder, and the notes that say so.

With a misspelt variable the ids come from a file nobody meant, and begin at 1 again.
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
"""What many platforms and frameworks call it; not ours, so it is never read."""

WORDS = frozenset({"DATABASE", "DB", "DSN", "URI", "URL"})
CLOSE = 0.9
"""How alike two names are, by difflib, for one to be a typo of the other."""

STATE = "allocator.default_file"
BEFORE, OPENED = "before", "opened"


def choose(context: click.Context) -> str:
    """The URL of the default file."""
    context.meta[STATE] = {BEFORE: Path(FILE).exists(), OPENED: False}
    return DEFAULT_URL


def mark_opened() -> None:
    """Remember that the command that runs looks into its database."""
    if state := click.get_current_context().meta.get(STATE):
        state[OPENED] = True


def take_notes(context: click.Context, environment: Collection[str], creates: bool = False) -> list[str]:
    """What to tell of the default file, once; nothing if the command did not choose it or did not open it.

    creates: it will be there in a moment.
    """
    state = context.meta.pop(STATE, None)
    if not state or not state[OPENED]:
        return []
    notes = [f"{name} is set, but is not read: the variable is called {URL_VARIABLE}" for name in misspelt(environment)]
    if COMMON_VARIABLE in environment:
        notes.append(f'{COMMON_VARIABLE} is set, but is not read: give it as --url "${COMMON_VARIABLE}"')
    if (file := Path(FILE).absolute()).exists() or creates:
        what = "using" if state[BEFORE] else "creating" if creates else "created"
        notes.insert(0, f"{what} {file}, because neither --url nor {URL_VARIABLE} names a database")
    return notes


def misspelt(environment: Iterable[str]) -> list[str]:
    """The names in which `URL_VARIABLE` is abbreviated, or which are a typo of it."""
    return sorted(name for name in environment if is_abbreviated(name.upper()) or is_typo(name.upper()))


def is_abbreviated(name: str) -> bool:
    first, *others = name.split("_")
    return first == "ALLOCATOR" and bool(others) and WORDS.issuperset(others)


def is_typo(name: str) -> bool:
    return bool(get_close_matches(name, (URL_VARIABLE, f"{URL_VARIABLE}_FILE"), n=1, cutoff=CLOSE))
