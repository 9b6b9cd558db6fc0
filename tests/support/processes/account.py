"""Checks what a crew wrote down: exactly, and in little memory, since ids that follow each other are one run."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.processes.drawing import CLAIMED, DRAWN, FAILED, METEOR, NODE, SNOWFLAKE, STOPPED

Run = tuple[int, int]
"""The first, and the one after the last."""


@dataclass
class Audit:
    """What was found. All but the first group must be 0, where the database forgets nothing.

    ids: drawn by all. claims: ranges that came from the database.
    failed: calls that raised `DatabaseUnavailable`. stopped: that raised `MaxValueWentBack`.
    others: meteors, snowflakes and nodes.

    duplicates: ids drawn once more. claimed_twice: the same for claims. outside: ids that were drawn by a process
    which had not claimed them. lost: ids that were claimed and lie above what the row says.
    repeated: of the others, those that another was before.
    """

    ids: int = 0
    claims: int = 0
    failed: int = 0
    stopped: int = 0
    others: int = 0
    duplicates: int = 0
    claimed_twice: int = 0
    outside: int = 0
    lost: int = 0
    repeated: int = 0
    runs: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list), repr=False)
    ranges: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list), repr=False)
    seen: set[tuple[int, int]] = field(default_factory=set, repr=False)

    @property
    def wrong(self) -> dict[str, int]:
        names = ("duplicates", "claimed_twice", "outside", "lost", "repeated")
        return {name: count for name in names if (count := getattr(self, name))}


def audited(folder: Path, max_values: Sequence[int]) -> Audit:
    """Of all accounts in a folder; `max_values` are those of the rows in the end, by the number of the tag."""
    audit = Audit()
    for path in folder.glob("notes-*"):
        add(audit, path.read_bytes())
    for tag, max_value in enumerate(max_values):
        runs, ranges = audit.runs[tag], audit.ranges[tag]
        audit.duplicates += size(runs) - covered(runs)
        audit.claimed_twice += size(ranges) - covered(ranges)
        audit.lost += covered([*ranges, (1, max_value + 1)]) - max_value
    return audit


def add(audit: Audit, data: bytes) -> None:
    """The account of one process."""
    runs: dict[int, list[Run]] = defaultdict(list)
    ranges: dict[int, list[Run]] = defaultdict(list)
    counts: Counter[int] = Counter()
    for kind, tag, words in records(data):
        counts[kind] += 1
        if kind == DRAWN:
            audit.ids += len(words)
            runs[tag] += runs_of(words)
        elif kind == CLAIMED and len(words) == 2:
            ranges[tag].append((words[0], words[1]))
        elif kind in (METEOR, SNOWFLAKE, NODE):
            audit.others += len(words)
            audit.seen.update((kind, word) for word in words)
    audit.repeated = audit.others - len(audit.seen)
    audit.claims += counts[CLAIMED]
    audit.failed += counts[FAILED]
    audit.stopped += counts[STOPPED]
    for tag, found in ranges.items():
        audit.ranges[tag] += found
    for tag, drawn in runs.items():
        audit.outside += covered([*drawn, *ranges[tag]]) - covered(ranges[tag])
        audit.runs[tag] += drawn


def records(data: bytes) -> Iterator[tuple[int, int, array[int]]]:
    """The last one may be torn by the kill: what stands there of it was drawn."""
    words = array("q")
    words.frombytes(data[: len(data) // 8 * 8])
    at = 0
    while at + 3 <= len(words):
        kind, tag, count = words[at : at + 3]
        yield kind, tag, words[at + 3 : at + 3 + count]
        at += 3 + count


def runs_of(ids: array[int]) -> Iterator[Run]:
    """Split until each part is what a range would be."""
    if not ids:
        return
    first, last = ids[0], ids[-1]
    if last - first == len(ids) - 1 and ids == array("q", range(first, last + 1)):
        yield first, last + 1
        return
    half = len(ids) // 2
    yield from runs_of(ids[:half])
    yield from runs_of(ids[half:])


def covered(runs: Iterable[Run]) -> int:
    """How many ids lie in any of the runs."""
    found, end = 0, 0
    for start, stop in sorted(runs):
        found += max(0, stop - max(start, end))
        end = max(end, stop)
    return found


def size(runs: Iterable[Run]) -> int:
    return sum(stop - start for start, stop in runs)
