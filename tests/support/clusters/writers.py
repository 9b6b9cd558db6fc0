"""The processes of `support.clusters.writer` together, and the account of what they drew."""

import json
import subprocess
import sys
import time
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import Any

from tqdm import tqdm

from support.closing import Closing
from support.clusters import writer
from support.clusters.cluster import MEMBERS, Cluster
from support.clusters.writer import RECORD, STEP
from support.distinct import none_twice
from support.processes.patience import until

END = 60.0
"""Seconds within which a writer has drawn its first id, and one that was told to stop has ended."""


@dataclass
class Drawn:
    """Of one scheme and name. pause: the longest time in which nobody drew an id; longest: the longest call."""

    ids: int = 0
    duplicates: int = 0
    claims: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    words: dict[str, str] = field(default_factory=dict)
    longest: float = 0.0
    moments: list[float] = field(default_factory=list)
    """Of the ids, by the monotonic clock."""

    @property
    def pause(self) -> float:
        return max((later - sooner for sooner, later in pairwise(self.moments)), default=0.0)

    def after(self, moment: float) -> int:
        """How many ids were drawn later than that."""
        return len(self.moments) - bisect(self.moments, moment)

    def __str__(self) -> str:
        codes = ", ".join(f"{count} x {code}" for code, count in self.codes.most_common()) or "none"
        errors = ", ".join(f"{count} {name}" for name, count in self.errors.most_common()) or "none"
        return (
            f"{self.ids} ids, {self.claims} claims, {self.duplicates} duplicates, longest call {self.longest:.2f} s, "
            f"longest time without an id {self.pause:.2f} s, errors of the server: {codes}; calls that failed: {errors}"
        )


class Writers(Closing):
    """Writers in a folder of their own, which all stop when told to; several may be started one after the other."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stop").unlink(missing_ok=True)
        self.settings = {"timeout": 5.0, "step": STEP, "max_step": STEP, **settings}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, scheme: str, name: str, urls: Sequence[str], **settings: Any) -> None:
        number = token_hex(4)
        given = {
            "urls": list(urls),
            "scheme": scheme,
            "name": name,
            "settings": {**self.settings, **settings},
            "folder": str(self.folder),
            "number": number,
        }
        # With -P the modules beside the writer do not hide those of Python.
        self.running[number] = subprocess.Popen(
            [sys.executable, "-P", "-W", "error", writer.__file__, json.dumps(given)]
        )

    def wait_for_all(self) -> None:
        """Until each has drawn an id, which on a busy machine takes a process a while."""
        drawn = until(lambda: all(map(self.has_drawn, self.running)), END, every=0.1, hopeless=self.has_lost_one)
        assert drawn, "a writer has ended" if self.has_lost_one() else f"a writer drew nothing within {END:g} seconds"

    def has_lost_one(self) -> bool:
        return any(process.poll() is not None for process in self.running.values())

    def has_drawn(self, number: str) -> bool:
        return any(path.stat().st_size for path in self.folder.glob(f"{number}-*.ids"))

    def stop(self) -> None:
        (self.folder / "stop").touch()
        for process in self.running.values():
            code = process.wait(END)
            assert code == 0, f"a writer ended with {code}"

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        self.running.clear()

    def drawn(self, scheme: str, name: str) -> Drawn:
        found = Drawn()
        records: list[tuple[float, int]] = []
        for path in self.folder.glob(f"*-{scheme}-{name}.ids"):
            data = path.read_bytes()
            records += RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size])
        found.ids = len(records)
        found.duplicates = len(records) - len({drawn for _, drawn in records})
        found.moments = sorted(moment for moment, _ in records)
        for path in self.folder.glob("*.json"):
            told = json.loads(path.read_text())
            if (told["scheme"], told["name"]) == (scheme, name):
                found.claims += told["claims"]
                found.codes.update(told["codes"])
                found.errors.update(told["errors"])
                found.words |= told["words"]
                found.longest = max(found.longest, told["longest"])
        return found


def wait(seconds: float, what: str) -> None:
    """With a bar on the terminal."""
    for _ in tqdm(range(int(seconds * 10)), desc=what, unit="tick", leave=False, disable=None):
        time.sleep(0.1)


# -- a run on a cluster: writers of every scheme, some trouble in the middle, and what must be true afterwards


TIMEOUT, SLACK = 5.0, 1.0
"""Seconds that a call may take, and how late it may be told so on a machine that is busy."""
WARM_UP, AFTERWARDS = 5.0, 10.0
COUNTS = {"segment": 3, "ticket": 3, "meteor": 1, "snowflake": 1}
"""Writers of each scheme."""

Report = Callable[[str], None]
Places = Callable[[int], Sequence[int]]
"""For the number of a writer, the members that it tries, the first one first."""


def only(member: int) -> Places:
    return lambda number: [member]


def its_own(number: int) -> Sequence[int]:
    return [number % MEMBERS]


def its_own_first(number: int) -> Sequence[int]:
    return [(number + offset) % MEMBERS for offset in range(MEMBERS)]


def in_order(number: int) -> Sequence[int]:
    return range(MEMBERS)


def under_load(
    cluster: Cluster,
    writers: Writers,
    name: str,
    places: Places,
    trouble: Callable[[], None],
    counts: dict[str, int] = COUNTS,
) -> dict[str, Drawn]:
    """Let writers draw, make trouble, let them draw on; gives what each scheme drew."""
    for scheme, count in counts.items():
        for number in range(count):
            writers.start(scheme, name, [cluster.url(member) for member in places(number)], timeout=TIMEOUT)
    writers.wait_for_all()
    wait(WARM_UP, f"{name}: warm-up")
    trouble()
    healed = time.monotonic()
    wait(AFTERWARDS, f"{name}: afterwards")
    writers.stop()
    found = {scheme: writers.drawn(scheme, name) for scheme in counts}
    for scheme, drawn in found.items():
        assert drawn.after(healed), f"no {scheme} id came after the trouble: {drawn}"
    return found


def account(found: dict[str, Drawn], report: Report) -> None:
    """Write down what was drawn; then nothing may be there twice, and no call have gone over its deadline."""
    for scheme, drawn in found.items():
        report(f"{scheme}: {drawn}")
    for scheme, drawn in found.items():
        none_twice(drawn.duplicates, f"{scheme}: {drawn}")
        assert drawn.longest < TIMEOUT + SLACK, f"{scheme}: {drawn}"
