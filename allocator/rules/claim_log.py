"""A line of the log for each claim: which process took which ids, and when.

    claimed tag=order first=1 last=1000 step=1 host=web-1 process=4711 at=2026-11-22T15:04:05Z database=sqlite:///ids.db

It is text that any log keeps: `claim_in` finds it in a plain line and in one of JSON.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

FIELD = r"[^\s\"\\]+"
OUTSIDE = re.compile(r"[\s\"\\]|[^ -~]")
"""What a field may not hold, since some logs write it otherwise."""
LINE = re.compile(
    rf"claimed tag=(?P<tag>{FIELD}) first=(?P<first>\d+) last=(?P<last>\d+) step=(?P<step>\d+) "
    rf"host=(?P<host>{FIELD}) process=(?P<process>\d+) at=(?P<at>{FIELD}) database=(?P<database>{FIELD})"
)
SECONDS = "%Y-%m-%dT%H:%M:%SZ"


class Claimed(NamedTuple):
    """The ids of one claim. `at` is by the clock of the process that claimed."""

    tag: str
    ids: range
    host: str
    process: int
    at: datetime
    database: str

    def __str__(self) -> str:
        return (
            f"claimed tag={self.tag} first={self.ids[0]} last={self.ids[-1]} step={self.ids.step} "
            f"host={plain(self.host)} process={self.process} at={self.at.astimezone(UTC):{SECONDS}} "
            f"database={plain(self.database)}"
        )


def claim_in(line: str) -> Claimed | None:
    """The claim that a line of a log tells of; None for any other line."""
    found = LINE.search(line)
    if found is None:
        return None
    first, last, step = (int(found[name]) for name in ("first", "last", "step"))
    try:
        at = datetime.strptime(found["at"], SECONDS).replace(tzinfo=UTC)
        ids = range(first, last + 1, step)
    except ValueError:
        return None
    return Claimed(found["tag"], ids, found["host"], int(found["process"]), at, found["database"])


def plain(text: str) -> str:
    return OUTSIDE.sub("?", text) or "?"
