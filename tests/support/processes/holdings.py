"""What pods wrote down of their numbers: nobody holds one while another does, nor in a second that another used, and no
two made the same id.

It reads times and ids out of files, and knows nothing of leases.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from support.processes.holder import ENTRY


class Span(NamedTuple):
    """When one held a number, by the clock that counts sleep, and in which seconds of the wall clock."""

    begins: float
    ends: float
    seconds: set[int]


@dataclass
class Verdict:
    """holders: commands that ran. together: how often one began before another of its number had ended.

    seconds_twice: seconds of the wall clock in which two used one number. pauses: from the end of one to the next.
    ids: of all libraries. equal: ids that their library had made before.
    """

    holders: int = 0
    numbers: int = 0
    together: int = 0
    seconds_twice: int = 0
    pauses: list[float] = field(default_factory=list)
    ids: int = 0
    equal: int = 0

    def __str__(self) -> str:
        cuts = quantiles(self.pauses, n=20) if len(self.pauses) > 1 else [0.0] * 19
        times = (
            f"{min(self.pauses, default=0):.1f} / {cuts[9]:.1f} / {cuts[18]:.1f} / {max(self.pauses, default=0):.1f} s"
        )
        return (
            f"{self.holders} holders of {self.numbers} numbers, {self.together} together, {self.seconds_twice} seconds "
            f"used twice; {self.ids} ids, {self.equal} equal; from the end of one to the next {times} (least, median, "
            "95 %, most)"
        )


def judged(folder: Path) -> Verdict:
    by_number: dict[tuple[str, str], list[Span]] = defaultdict(list)
    ids: dict[str, list[int]] = defaultdict(list)
    for path in folder.glob("held-*"):
        _, library, number, *_ = path.name.split("-")
        data = path.read_bytes()
        if entries := list(ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size])):
            times, walls, made = zip(*entries, strict=True)
            by_number[library, number].append(Span(times[0], max(times), set(map(int, walls))))
            ids[library] += filter(None, made)
    found = Verdict(numbers=len(by_number))
    found.ids = sum(map(len, ids.values()))
    found.equal = found.ids - sum(len(set(made)) for made in ids.values())
    for spans in by_number.values():
        found.holders += len(spans)
        end, used = 0.0, set[int]()
        for begins, ends, seconds in sorted(spans, key=lambda span: span.begins):
            if end:
                found.pauses.append(begins - end)
            found.together += begins <= end
            found.seconds_twice += len(used & seconds)
            end, used = max(end, ends), used | seconds
    return found


def write(path: Path, *entries: tuple[float, float, int]) -> None:
    """As a pod does, for the tests of this."""
    path.write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries))
