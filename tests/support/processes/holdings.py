"""What pods wrote down of their numbers: nobody holds one while another does, nor in a second that another used.

It reads times out of files, and knows nothing of leases.
"""

from __future__ import annotations

import struct
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles


@dataclass
class Verdict:
    """holders: commands that ran. together: how often one began before another of its number had ended.

    seconds_twice: seconds of the wall clock in which two used one number. pauses: from the end of one to the next.
    """

    holders: int = 0
    numbers: int = 0
    together: int = 0
    seconds_twice: int = 0
    pauses: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        cuts = quantiles(self.pauses, n=20) if len(self.pauses) > 1 else [0.0] * 19
        times = (
            f"{min(self.pauses, default=0):.1f} / {cuts[9]:.1f} / {cuts[18]:.1f} / {max(self.pauses, default=0):.1f} s"
        )
        return (
            f"{self.holders} holders of {self.numbers} numbers, {self.together} together, {self.seconds_twice} seconds "
            f"used twice; from the end of one to the next {times} (least, median, 95 %, most)"
        )


def judged(folder: Path) -> Verdict:
    by_number: dict[str, list[tuple[float, float, set[int]]]] = defaultdict(list)
    for path in folder.glob("held-*"):
        data = path.read_bytes()
        times = array("d", data[: len(data) // 16 * 16])
        if times:
            by_number[path.name.split("-")[1]].append((times[0], max(times[::2]), set(map(int, times[1::2]))))
    found = Verdict(numbers=len(by_number))
    for spans in by_number.values():
        found.holders += len(spans)
        end, used = 0.0, set[int]()
        for begins, ends, seconds in sorted(spans, key=lambda span: span[0]):
            if end:
                found.pauses.append(begins - end)
            found.together += begins <= end
            found.seconds_twice += len(used & seconds)
            end, used = max(end, ends), used | seconds
    return found


def write(path: Path, *times: tuple[float, float]) -> None:
    """As a pod does, for the tests of this."""
    path.write_bytes(b"".join(struct.pack("=dd", *both) for both in times))
