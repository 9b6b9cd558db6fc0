"""Databases that are made ill on purpose, and what the doctor says of them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allocator.doctor import Finding, examine
from support.servers.administrator import execute
from support.servers.databases import with_schema


@contextmanager
def changed(url: str, make: str | tuple[str, ...], undo: str | tuple[str, ...]) -> Iterator[None]:
    execute(url, *((make,) if isinstance(make, str) else make))
    try:
        yield
    finally:
        execute(url, *((undo,) if isinstance(undo, str) else undo))


def named(findings: list[Finding]) -> dict[str, Finding]:
    """By name; of one that is there several times, the first."""
    return {one.name: one for one in reversed(findings)}


class Patient:
    """A database with the schema, and what is found of it while nothing is changed."""

    def __init__(self, url: str) -> None:
        self.url = with_schema(url)
        self.healthy = set(self.found())

    def found(self, **settings: Any) -> dict[str, Finding]:
        return named(examine(self.url, **settings))

    def shows(
        self, name: str, make: str | tuple[str, ...], undo: str | tuple[str, ...], admin: str | None = None
    ) -> Finding:
        """What is found between the two, and was not found before."""
        assert name not in self.healthy
        with changed(admin or self.url, make, undo):
            found = self.found()
        assert name in found, sorted(found)
        return found[name]


# -- what a user may not write: root may write whatever it likes


NOBODY = 65_534


@contextmanager
def as_nobody() -> Iterator[None]:
    is_root = os.getuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
