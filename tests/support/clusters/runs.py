"""A run on a cluster: writers of every scheme, some trouble in the middle, and what must be true afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from support.clusters.cluster import MEMBERS, Cluster
from support.clusters.writers import Drawn, Writers, wait
from support.distinct import none_twice

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
