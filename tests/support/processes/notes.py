"""What a process of a `Crew` notes that draws ids: each one before it draws the next, so that a kill hides none."""

import struct
import time
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from allocator.errors import AllocatorError

RECORD = struct.Struct("<dq")
"""The moment, by the monotonic clock, and the id."""


class Notes:
    """path: of the file of ids. Beside it are the calls that failed, and how long the longest took."""

    def __init__(self, path: Path) -> None:
        self._ids, self._failed = path.open("ab", buffering=0), beside(path, "failed").open("a", buffering=1)
        self._path, self._longest = path, 0.0

    @contextmanager
    def call(self) -> Iterator[None]:
        """One, in which its id is written."""
        began = time.monotonic()
        try:
            yield
        except AllocatorError as error:
            self.fail(f"{type(error).__name__}: {error}")
        if (took := time.monotonic() - began) > self._longest:
            self._longest = took
            beside(self._path, "longest").write_text(str(took))

    def write(self, found: int) -> None:
        self._ids.write(RECORD.pack(time.monotonic(), found))

    def fail(self, words: str) -> None:
        self._failed.write(" ".join(words.split()) + "\n")


def beside(path: Path, what: str) -> Path:
    return path.with_name(f"{what}-{path.name}")


def records(path: Path) -> Iterator[tuple[float, int]]:
    """Without the last bytes of a process that was killed while it wrote."""
    data = path.read_bytes()
    yield from RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size])


@dataclass
class Drawn:
    """What some processes noted. failed: calls by the name of their error; words: one of each.

    longest: the longest call.
    """

    moments: list[float] = field(default_factory=list)
    ids: int = 0
    duplicates: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    words: dict[str, str] = field(default_factory=dict)
    longest: float = 0.0

    def after(self, moment: float) -> int:
        """How many ids were drawn later than that."""
        return len(self.moments) - bisect(self.moments, moment)

    def __str__(self) -> str:
        failed = ", ".join(f"{count} x {name}" for name, count in self.failed.most_common()) or "none"
        return f"{self.ids} ids, {self.duplicates} duplicates, longest call {self.longest:.2f} s; failed: {failed}"


def drawn(paths: Iterable[Path]) -> Drawn:
    found, ids = Drawn(), set[int]()
    for path in paths:
        for moment, number in records(path):
            found.moments.append(moment)
            ids.add(number)
        lines = beside(path, "failed").read_text().splitlines()
        found.words |= {line.partition(":")[0]: line[:300] for line in lines}
        found.failed.update(line.partition(":")[0] for line in lines)
        if (longest := beside(path, "longest")).exists():
            found.longest = max(found.longest, float(longest.read_text() or 0))
    found.moments.sort()
    found.ids = len(found.moments)
    found.duplicates = found.ids - len(ids)
    return found
