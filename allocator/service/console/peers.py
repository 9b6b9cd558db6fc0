"""What the workers of one service tell each other: a file of each, in the folder of the run, while a page is looked at.

A worker that answers for a page says what it wants to know, by touching a file for each name; the others see that
within a second, and write their figures, and the history of the tags that are looked at, until nobody asks any more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from time import time
from typing import NamedTuple

from allocator.service.console.history import Sample
from allocator.service.console.tag_table import Figure

ASKED_FOR = 20.0
"""Seconds for which a question is answered; longer than a page waits before it asks again."""
MOST_ASKED = 256
"""Names that are asked for at a time; each is a file."""
FRESH = 5.0
"""Seconds after which figures are those of a worker that is gone."""


class Told(NamedTuple):
    """What one worker says: ids a second in all, figures by tag, and histories by the names that were asked for."""

    rate: float
    figures: dict[str, Figure]
    histories: dict[str, list[Sample]]


class Peers:
    """`workers`: of the service; one alone tells nobody, and asks nobody. Blocking: files are written and read."""

    def __init__(self, folder: str, workers: int) -> None:
        self.workers = workers
        self._said = Path(folder) / "console"
        self._asked = self._said / "asked"
        if workers > 1:
            self._asked.mkdir(parents=True, exist_ok=True)

    @property
    def are_there(self) -> bool:
        return self.workers > 1

    def ask(self, names: Iterable[str]) -> list[Told]:
        """What the others said lately, and tell them to go on saying it.

        Each name makes a file: ask for names of tags that are there, and for no others.
        """
        for name in names:
            path = self._file_of(name)
            if path.exists() or sum(1 for _ in self._asked.iterdir()) < MOST_ASKED:
                path.touch()
        ours, now = self._own().name, time()
        return [read(path) for path in self._said.glob("*.json") if path.name != ours and now - modified(path) < FRESH]

    def is_asked(self, name: str) -> bool:
        return self._file_of(name).exists()

    def wanted(self) -> list[str]:
        """The names that somebody asked for."""
        found = []
        for path in self._asked.iterdir():
            if time() - modified(path) < ASKED_FOR:
                found.append(bytes.fromhex(path.name[1:]).decode())
            else:
                path.unlink(missing_ok=True)
        return found

    def tell(self, say: Callable[[list[str]], Told]) -> None:
        """Write what this worker says, if anybody wants to know."""
        if not (names := self.wanted()):
            return
        path = self._own()
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(say(names)))
        draft.replace(path)

    def _file_of(self, name: str) -> Path:
        return self._asked / f"-{name.encode().hex()}"

    def _own(self) -> Path:
        return self._said / f"{os.getpid()}.json"


def modified(path: Path) -> float:
    """When it was written; long ago where it is gone."""
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def read(path: Path) -> Told:
    try:
        rate, figures, histories = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Told(0.0, {}, {})
    return Told(
        rate,
        {tag: Figure(*figure) for tag, figure in figures.items()},
        {name: [Sample(*sample) for sample in samples] for name, samples in histories.items()},
    )
