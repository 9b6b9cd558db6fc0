"""The log line of one claim: its ids, its process and its time.

    claimed tag=order first=1 last=1000 step=1 host=web-1 process=4711 at=2026-11-22T15:04:05Z database=sqlite:///ids.db

`claim_in` finds it in plain text and in JSON lines.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

FIELD = r"[^\s\"\\]+"
OUTSIDE = r"[\s\"\\]|[^ -~]"
"""Characters that a field must not contain: some loggers escape them."""
LINE = (
    rf"claimed tag=(?P<tag>{FIELD}) first=(?P<first>\d+) last=(?P<last>\d+) step=(?P<step>\d+) "
    rf"host=(?P<host>{FIELD}) process=(?P<process>\d+) at=(?P<at>{FIELD}) database=(?P<database>{FIELD})"
)
CLAIMED = "claimed tag=%s first=%d last=%d step=%d host=%s process=%d at=%s database=%s"
SECONDS = "%Y-%m-%dT%H:%M:%SZ"


class Claimed(NamedTuple):
    """One claim. `at` is the time by the clock of the claiming process."""

    tag: str
    ids: range
    host: str
    process: int
    at: datetime
    database: str

    def __str__(self) -> str:
        at, span = self.at.astimezone(UTC).strftime(SECONDS), (self.ids[0], self.ids[-1], self.ids.step)
        return CLAIMED % (self.tag, *span, sanitize(self.host), self.process, at, sanitize(self.database))


def claim_in(line: str) -> Claimed | None:
    """Parse the claim in a line of a log; None for any other line."""
    match = re.search(LINE, line)
    if match is None:
        return None
    first, last, step = (int(match[name]) for name in ("first", "last", "step"))
    try:
        at = datetime.strptime(match["at"], SECONDS).replace(tzinfo=UTC)
        ids = range(first, last + 1, step)
    except ValueError:
        return None
    return Claimed(match["tag"], ids, match["host"], int(match["process"]), at, match["database"])


def sanitize(text: str) -> str:
    return re.sub(OUTSIDE, "?", text) or "?"
