"""Findings of the doctor on a tag that is bound to a column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from allocator.rules.days_left import AT_LEAST
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding
from allocator.rules.key_columns import KeyColumn, at_rate
from allocator.rules.takeover_ranges import ColumnFacts, Takeover, a_day, problems
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.shared.residues import ALL
from allocator.schemes.tag import Tag

HELD = ("started", "going back")
"""States of a takeover in which the column's own counter gives ids too, held in its range."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A binding to the column at `place`: schema.table.column."""

    place: str

    def is_named(self, words: str) -> bool:
        """Whether `words` are the place or the end of it: orders.id names public.orders.id."""
        return f".{self.place}".endswith(f".{words}")


@dataclass(frozen=True, slots=True)
class Binding(Placed):
    """A row of `allocator_binding`, or a takeover that was not given back.

    greatest: the greatest value of the column when it was bound. tag_first: the first id that the tag could issue then;
    no row between the two is the tag's. issued: how many ids the tag had issued then. bound_at: in milliseconds.
    """

    tag: str
    greatest: int
    tag_first: int
    issued: int
    bound_at: int
    takeover: Takeover | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A binding, with its column and its tag as they were read for the doctor.

    facts: None if the column is gone.
    greatest: the greatest id among the tag's rows: in the column, or in the tag's range during a takeover.
    smallest: the smallest id in the column; None without rows.
    stray: the greatest row above `stray_above` that neither tag nor counter can have issued; 0 for none.
    is_refused: a trigger refuses an INSERT without an id.
    """

    binding: Binding
    facts: ColumnFacts | None = None
    tag: Tag | None = None
    greatest: int = 0
    smallest: int | None = None
    stray: int = 0
    stray_above: int = 0
    is_refused: bool = False

    @property
    def last(self) -> int:
        """The greatest id that the tag may issue for this column."""
        of_column = self.facts.limit if self.facts else MAX_ID
        takeover = self.binding.takeover
        return min(of_column, takeover.ranges.tag_last) if takeover else of_column


def findings(bound: Bound, now_ms: int, today: date) -> list[Finding]:
    """A finding for each rule that a bound column breaks."""
    if bound.facts is None:
        return [gone(bound.binding, f"tag {bound.binding.tag!r} is", "tags")]
    if bound.tag is None:
        return [without_tag(bound)]
    if bound.tag.residue != ALL:
        return [of_fleet(bound.binding)]
    of_tag = list(of_ids(bound, bound.tag, bound.facts))
    loose = None if of_tag else loose_takeover(bound, bound.tag, bound.facts)
    end = ending(bound, bound.tag, bound.facts, now_ms, today)
    return [*of_tag, *(one for one in (loose, end) if one), *of_rows(bound, bound.facts)]


def gone(binding: Placed, what: str, group: str) -> Finding:
    return Finding(
        "bound-column-gone",
        NOTE,
        f"{what} bound to {binding.place}, and this user sees no such column",
        f"allocator {group} unbind {binding.place}",
    )


def without_tag(bound: Bound) -> Finding:
    binding, takeover = bound.binding, bound.binding.takeover
    after = max(bound.greatest, binding.greatest, takeover.ranges.tag_first - 1 if takeover else 0)
    limit = f" --limit {bound.last}" if bound.last < MAX_ID else ""
    return Finding(
        "bound-tag-gone",
        DANGER if after else NOTE,
        f"{binding.place} is bound to tag {binding.tag!r}, which is gone: its first use would create it, starting at 1",
        f"allocator tags create {binding.tag} --start-after {after}{limit}",
    )


def of_fleet(binding: Binding) -> Finding:
    return Finding(
        "binding-in-a-fleet",
        NOTE,
        f"tag {binding.tag!r} is bound to {binding.place}, and has several shards since: one of them alone cannot tell "
        "whether a row is the tag's",
        f"allocator tags unbind {binding.place}",
    )


def of_ids(bound: Bound, tag: Tag, facts: ColumnFacts) -> Iterator[Finding]:
    """THE RULE: a tag below its column will issue ids that are rows already; one above it, ids that do not fit."""
    if bound.greatest > tag.max_value:
        limit = f" --limit {bound.last}" if bound.greatest > tag.limit else ""
        yield Finding(
            "tag-below-column",
            DANGER,
            f"{bound.binding.place} holds {bound.greatest:,}, and tag {tag.name!r} is at {tag.max_value:,}: it will "
            "issue ids that rows have already",
            f"allocator tags set {tag.name} --start-after {bound.greatest}{limit}",
        )
    if tag.limit > bound.last:
        taken = bound.last < facts.limit
        ends = "the range of its takeover" if taken else f"{facts.place} ({facts.type})"
        set_limit = f"allocator tags set {tag.name} --limit {bound.last}"
        yield Finding(
            "tag-limit-above-column",
            DANGER if taken else OUTAGE,
            f"tag {tag.name!r} has the limit {tag.limit:,}, but {ends} ends at {bound.last:,}: above that, "
            f"{'ids may repeat' if taken else 'INSERTs will fail'}",
            set_limit if tag.max_value <= bound.last or not facts.remedy.widen else facts.remedy.widen,
        )


def ending(bound: Bound, tag: Tag, facts: ColumnFacts, now_ms: int, today: date) -> Finding | None:
    """A finding if a column of less than 64 bits is nearly full, or ends soon at the tag's rate."""
    if not facts.remedy.widen:
        return None
    key = KeyColumn(facts.table, facts.column, facts.type, facts.limit, max(tag.max_value, facts.reached))
    outlook = at_rate(key, rate(bound.binding, tag, now_ms), today)
    if not outlook.needs_attention(today):
        return None
    when = f", and ends on {outlook.ends} at the rate since it was bound" if outlook.ends else ""
    return Finding(
        "bound-column-ends",
        OUTAGE,
        f"{facts.place} ({facts.type}) is {100 * key.used:.0f} % full, at {key.greatest:,} of {key.limit:,}{when}",
        f"this copies the table, so plan it: {facts.remedy.widen}",
    )


def rate(binding: Binding, tag: Tag, now_ms: int) -> float | None:
    """Ids a day since the tag was bound; None in the first hour."""
    seconds = (now_ms - binding.bound_at) / 1000
    return a_day(binding.issued, tag.max_value - tag.skipped, seconds) if seconds >= AT_LEAST else None


def of_rows(bound: Bound, facts: ColumnFacts) -> Iterator[Finding]:
    """Findings on rows that the tag cannot have issued, and on a second generator of ids."""
    tag, takeover = bound.binding.tag, bound.binding.takeover
    if bound.stray:
        yield Finding(
            "rows-not-of-the-tag",
            DANGER,
            f"{facts.place} holds {bound.stray:,}, which tag {tag!r} cannot have issued: something else writes ids, "
            "and may come to those of the tag",
            f"find out what wrote it: {facts.remedy.find.format(low=bound.stray_above + 1, high=bound.stray)}",
        )
    if bound.smallest is not None and bound.smallest <= 0:
        yield Finding(
            "rows-below-1",
            NOTE,
            f"{facts.place} holds {bound.smallest:,}, and no tag issues ids below 1",
            f"find out what wrote it: {facts.remedy.find.format(low=bound.smallest, high=0)}",
        )
    is_held = takeover is not None and takeover.state in HELD
    if facts.generates and not bound.is_refused and not is_held:
        yield Finding(
            "second-generator",
            DANGER if facts.remedy.drop else NOTE,
            f"{facts.place} also gets ids from {facts.generates}: an INSERT without an id takes one that tag {tag!r} "
            "may issue",
            facts.remedy.drop or "name an id in each INSERT",
        )


def loose_takeover(bound: Bound, tag: Tag, facts: ColumnFacts) -> Finding | None:
    """The first problem that `allocator takeover status` reports, unless another finding covers it."""
    takeover = bound.binding.takeover
    found = problems(takeover, tag, facts, bound.greatest) if takeover else []
    if not found:
        return None
    return Finding("takeover-not-held", DANGER, found[0], f"allocator takeover back {facts.place}")
