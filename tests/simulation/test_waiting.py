"""Rows that wait for a number: every order of the steps of several transactions, and every death in between.

Writers write a row in a transaction, which commits or rolls back; one draws a number of each period in it. Callers of
`assign` lock counters, read the rows, lock them, and write counters and numbers in one transaction: of one group, for
which they wait, or of all that nobody holds. A row may move to another period while it waits. The rule is the real one;
the database is rows with locks, whose statements see what is committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import chain
from typing import Any

import pytest

from allocator.schemes.gapless_numbers import Group, NumberFormat, NumberRule
from allocator.schemes.waiting_numbers import WaitingRow, in_groups, numbered
from simulation.controls import broken, out
from simulation.seeds import Violation, holds, is_out

RULE = NumberRule("invoice", NumberFormat("{year}/{n}"), "year")
NOW, BEFORE = date(2026, 1, 1), date(2025, 1, 1)
GROUP = Group("", "2026")
BOTH = (Group("", "2025"), GROUP)
AT_ONCE = 2


@dataclass(frozen=True)
class Row:
    """As committed: text is None while it waits."""

    key: int
    at: date
    text: str | None = None


@dataclass(frozen=True)
class Stored:
    """What is committed, and who holds which lock until the end of its transaction: of a row, or of a counter."""

    rows: tuple[Row, ...] = (Row(2, NOW), Row(3, NOW))
    last: tuple[tuple[Group, int], ...] = tuple((group, 0) for group in BOTH)
    held: tuple[tuple[object, str], ...] = ()

    def waiting(self, keys: Iterable[int] | None = None) -> list[WaitingRow]:
        found = [WaitingRow((row.key,), None, row.at) for row in self.rows if row.text is None][:AT_ONCE]
        return [row for row in found if keys is None or row.key[0] in keys]

    def raised(self, counts: dict[Group, int]) -> Stored:
        return replace(self, last=tuple((group, max(n, counts.get(group, n))) for group, n in self.last))

    def released(self, me: str) -> Stored:
        return replace(self, held=tuple(one for one in self.held if one[1] != me))

    def locked(self, me: str, *names: object) -> Stored:
        return replace(self, held=(*self.held, *((name, me) for name in names)))

    def is_free(self, me: str, name: object) -> bool:
        return dict(self.held).get(name, me) == me


Outcomes = Iterator[tuple[Stored, Any]]
"""What is stored after a step, and what the transaction reads in it; none while it waits for a lock."""
Life = Generator[Callable[[Stored], Outcomes], Any, None]


# -- steps


def lock_counter(me: str, group: Group, stored: Stored) -> Outcomes:
    if is_out("a caller locks the counter"):
        yield stored, stored.last
    elif stored.is_free(me, group):
        yield stored.locked(me, group), stored.last


def lock_free_counters(me: str, stored: Stored) -> Outcomes:
    free = tuple(group for group in BOTH if stored.is_free(me, group))
    yield stored.locked(me, *free), (free, stored.last)


def read(groups: tuple[Group, ...], stored: Stored) -> Outcomes:
    yield stored, of_groups(groups, stored.waiting())


def of_groups(groups: tuple[Group, ...], rows: Iterable[WaitingRow]) -> tuple[WaitingRow, ...]:
    found = in_groups(RULE, None, rows).groups
    return tuple(one.row for group in groups for one in found.get(group, ()))


def lock_rows(me: str, found: tuple[WaitingRow, ...], stored: Stored) -> Outcomes:
    """Those that are still of the group when they are free."""
    keys = {row.key[0] for row in found}
    if is_out("a caller locks the rows"):
        yield stored, found
    elif all(stored.is_free(me, key) for key in keys):
        again = of_groups((GROUP,), stored.waiting(keys))
        yield stored.locked(me, *(row.key[0] for row in again)), again


def lock_same_rows(me: str, groups: tuple[Group, ...], found: tuple[WaitingRow, ...], stored: Stored) -> Outcomes:
    """Of the groups in which all that were read are free, and as they were."""
    before = in_groups(RULE, None, of_groups(groups, found)).groups
    free = [one.row.key[0] for one in chain(*before.values()) if stored.is_free(me, one.row.key[0])]
    again = in_groups(RULE, None, stored.waiting(free)).groups
    rows = tuple(one.row for group in groups if again.get(group) == before.get(group) for one in again.get(group, ()))
    yield stored.locked(me, *(row.key[0] for row in rows)), rows


def assign(me: str, last: tuple[tuple[Group, int], ...], found: tuple[WaitingRow, ...], stored: Stored) -> Outcomes:
    due = in_groups(RULE, None, found).groups
    counts = {group: dict(last)[group] + len(rows) for group, rows in due.items()}
    numbers = chain.from_iterable(numbered(RULE, rows, counts[group]) for group, rows in due.items())
    texts = {key[0]: number.text for key, number in numbers}
    takes = {row.key for row in stored.rows if row.key in texts and holds(("assign: waits", row.text is None))}
    if not holds(("assign: all of them", len(takes) == len(texts))):
        yield stored.released(me), None
        return
    rows = tuple(replace(row, text=texts[row.key]) if row.key in takes else row for row in stored.rows)
    raised = stored if is_out("assign: the counter") else stored.raised(counts)
    yield replace(raised, rows=rows).released(me), None


def draw(stored: Stored) -> Outcomes:
    """A number in a statement of its own."""
    n = dict(stored.last)[GROUP] + 1
    yield stored.raised({GROUP: n}), f"2026/{n}"


def write(row: Row, stored: Stored) -> Outcomes:
    """Of it nothing is seen before the commit, and after a rollback never."""
    yield replace(stored, rows=tuple(sorted((*stored.rows, row), key=lambda one: one.key))), None
    yield stored, None


def draw_both(me: str, stored: Stored) -> Outcomes:
    counts = {group: n + 1 for group, n in stored.last}
    made = (Row(8, BEFORE, f"2025/{counts[BOTH[0]]}"), Row(9, NOW, f"2026/{counts[BOTH[1]]}"))
    yield replace(stored.raised(counts), rows=(*stored.rows, *made)).released(me), None


def move(me: str, key: int, stored: Stored) -> Outcomes:
    """A waiting row to the year before, if nobody holds it."""
    if stored.is_free(me, key):
        moved = (replace(r, at=BEFORE) if r.key == key and r.text is None else r for r in stored.rows)
        yield replace(stored, rows=tuple(moved)), None


# -- transactions


def writer(me: str) -> Life:
    text = (yield draw) if is_out("a number is drawn in its transaction") else None
    yield partial(write, Row(1, NOW, text))


def drawer(me: str) -> Life:
    """For two rows in its own transaction, of the later period first."""
    for group in reversed(BOTH):
        yield partial(lock_counter, me, group)
    yield partial(draw_both, me)


def mover(me: str) -> Life:
    yield partial(move, me, 2)


def caller(me: str) -> Life:
    last = yield partial(lock_counter, me, GROUP)
    found = yield partial(read, (GROUP,))
    found = yield partial(lock_rows, me, found)
    yield partial(assign, me, last, found)


def together(me: str) -> Life:
    """Assigns those of two groups of which nobody holds counter or row, where all rows are as it read them before."""
    found = yield partial(read, BOTH)
    if is_out("nobody waits for several counters"):
        for group in BOTH:
            last = yield partial(lock_counter, me, group)
        groups = BOTH
    else:
        groups, last = yield partial(lock_free_counters, me)
    found = yield partial(lock_same_rows, me, groups, found)
    yield partial(assign, me, last, found)


# -- all worlds


def step_after(life: Life, log: tuple[Any, ...]) -> Callable[[Stored], Outcomes] | None:
    """The step that comes when these were read; None at the end."""
    try:
        step = next(life)
        for value in log:
            step = life.send(value)
    except StopIteration:
        return None
    return step


class Worlds:
    """Two rows are committed; a third is written, before them in order; a caller, and others. Every state once.

    `lives` are what each transaction has read, None when it has ended.
    """

    def __init__(self, *others: Callable[[str], Life]) -> None:
        self.transactions = (writer, caller, *others)
        self.seen: set[tuple[Stored, tuple[tuple[Any, ...] | None, ...]]] = set()
        self.ended = 0
        self.visit(Stored(), tuple(() for _ in self.transactions))

    def visit(self, stored: Stored, lives: tuple[tuple[Any, ...] | None, ...]) -> None:
        if (stored, lives) in self.seen:
            return
        self.seen.add((stored, lives))
        check(stored)
        has_moved = False
        for at, log in enumerate(lives):
            if log is None:
                continue
            me = str(at)
            step = step_after(self.transactions[at](me), log)
            assert step is not None
            for after, value in step(stored):
                has_moved = True
                keeps_its_numbers(stored, after)
                is_over = step_after(self.transactions[at](me), (*log, value)) is None
                self.visit(after, (*lives[:at], None if is_over else (*log, value), *lives[at + 1 :]))
            self.visit(stored.released(me), (*lives[:at], None, *lives[at + 1 :]))  # it dies
        if not has_moved:
            self.end(stored, lives)

    def end(self, stored: Stored, lives: tuple[tuple[Any, ...] | None, ...]) -> None:
        """All have ended; whoever comes next leaves no row of the group without a number."""
        if any(log is not None for log in lives):
            raise Violation(f"all wait for each other: {lives}")
        self.ended += 1
        for _ in stored.rows:
            log: tuple[Any, ...] = ()
            while step := step_after(together("last"), log):
                *_, (stored, value) = step(stored)
                log = (*log, value)
        check(stored)
        if any(row.text is None for row in stored.rows):
            raise Violation(f"a row is left without a number: {stored.rows}")
        if sum(last for _, last in stored.last) != len(stored.rows):
            raise Violation(f"the counters are at {stored.last}, for {stored.rows}")


def check(stored: Stored) -> None:
    """No gap, no duplicate, and each text of the row's own year, in what is committed."""
    texts = [row.text for row in stored.rows if row.text is not None]
    if len(texts) != len(set(texts)):
        raise Violation(f"a number came twice: {texts}")
    years = Counter(text[:4] for text in texts)
    if set(texts) != {f"{year}/{n}" for year, last in years.items() for n in range(1, last + 1)}:
        raise Violation(f"numbers {texts} have a gap")
    if any(not row.text.startswith(f"{row.at.year}/") for row in stored.rows if row.text is not None):
        raise Violation(f"a number of another year: {stored.rows}")


def keeps_its_numbers(before: Stored, after: Stored) -> None:
    texts = {row.key: row.text for row in after.rows}
    changed = [row for row in before.rows if row.text not in {None, texts[row.key]}]
    if changed:
        raise Violation(f"a row got another number: {changed}")


@pytest.mark.parametrize("others", [(together, mover, drawer), (caller, together, drawer), (caller, together, mover)])
def test_no_gap_no_duplicate_and_no_row_left_in_any_of_all_worlds(others):
    worlds = Worlds(*others)

    assert len(worlds.seen) > 4000
    assert worlds.ended > 20


BROKEN = [
    ("have a gap", ["a number is drawn in its transaction"], (caller, drawer)),
    (
        "came twice",
        ["a caller locks the counter", "a caller locks the rows", "assign: all of them"],
        (caller, drawer),
    ),
    ("came twice", ["a caller locks the counter", "a caller locks the rows", "assign: waits"], (caller, drawer)),
    ("came twice", ["assign: the counter"], (caller, drawer)),
    ("came twice", ["assign: the counter"], (together, drawer)),
    ("all wait for each other", ["nobody waits for several counters"], (together, drawer)),
    # Numbered as it was before its lock.
    ("a number of another year", ["a caller locks the rows"], (caller, mover)),
]


@pytest.mark.parametrize(("found", "words", "others"), BROKEN)
def test_control_a_broken_rule_shows_in_one_of_them(found, words, others):
    with broken(out(*words)), pytest.raises(Violation, match=found):
        Worlds(*others)
