"""Claims of several tags as one: what a process needs at one moment costs one commit, not one for each tag.

Nothing here waits for the lock of a row, so that one tag cannot hold up the others, and two batches cannot wait for
each other. What is not claimed (its row is locked, missing, near its limit, or went back) is left to the claim of one
tag.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, TextClause, bindparam, text

from allocator.database.tables import segment
from allocator.database.verbs.segments import READ, SegmentVerbs, as_tag
from allocator.schemes.residues import Lane
from allocator.schemes.tag import Tag

FIELDS = ("name", "span", "seen", "lane_offset", "lane_step")

CLAIMABLE = (
    "s.tag = w.name AND s.max_value <= s.id_limit - w.span AND s.max_value >= w.seen "
    "AND s.shard_offset = w.lane_offset AND s.shard_step = w.lane_step AND {here}"
)
"""The guards of `segments.claiming`, for the row `s` and what is wanted of it, `w`; no other has a column `epoch`."""

LEAST = 2
"""Of so many tags a batch is cheaper than a claim for each."""


class Wanted(NamedTuple):
    """Of one tag: `size` ids of a lane above those `seen`."""

    name: str
    size: int
    lane: Lane
    seen: int

    @property
    def span(self) -> int:
        return self.size * self.lane.step


class BatchVerbs(SegmentVerbs):
    def claim_segments(self, connection: Connection, wanted: Sequence[Wanted]) -> dict[str, int]:
        """Claim for as many of these tags as can be had without waiting: the end of the window of each."""
        raise NotImplementedError

    def read_segments(self, connection: Connection, names: Iterable[str]) -> list[Tag]:
        return [as_tag(row) for row in connection.execute(READ.where(among(names)))]


def among(names: Iterable[str]) -> ColumnElement[bool]:
    return segment.c.tag.in_(list(names))


def rows_of(field: str) -> str:
    """The columns of what is wanted, each written like `field`."""
    return ", ".join(field.format(name) for name in FIELDS)


def listed(wanted: Sequence[Wanted]) -> dict[str, str]:
    """The parameter of a statement that reads them as rows."""
    return {"wanted": json.dumps([dict(zip(FIELDS, (w.name, w.span, w.seen, *w.lane), strict=True)) for w in wanted])}


@cache
def statement(words: str, here: str) -> TextClause:
    return text(words.format(here=here)).bindparams(bindparam("wanted"))


def ends_of(rows: Sequence[Any]) -> dict[str, int]:
    """What was claimed; of a table that is damaged nothing, so that the claim of one tag finds out and says so."""
    found = {name: end for name, end in rows if type(end) is int}
    return found if len(found) == len(rows) else {}
