"""The smallest world of rows that wait for a number, and everything that can happen in it.

Writers write a row in a transaction, which commits or rolls back; one draws a number of each period in it. Callers of
`assign` lock counters, read the rows, lock them, and write counters and numbers in one transaction: of one group, for
which they wait, or of all that nobody holds. Their steps interleave in every order; a caller may die before each step,
and a row may move to another period while it waits. The rule is the real one; the database is rows with locks, whose
statements see what is committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import chain

from allocator.schemes.gapless_numbers import Group, NumberFormat, NumberRule
from allocator.schemes.waiting_numbers import WaitingRow, in_groups, numbered
from simulation.violation import Violation

RULE = NumberRule("invoice", NumberFormat("{year}/{n}"), "year")
NOW, BEFORE = date(2026, 1, 1), date(2025, 1, 1)
GROUP = Group("", "2026")
BOTH = (Group("", "2025"), GROUP)
AT_ONCE = 2

Counts = tuple[tuple[Group, int], ...]
Holders = tuple[tuple[object, str], ...]
"""Who holds what: a row by its key, or the counter of a group."""


@dataclass(frozen=True)
class Row:
    """As committed: text is None while it waits."""

    key: int
    at: date
    text: str | None = None


@dataclass(frozen=True)
class Stored:
    """What is committed, and who holds which lock until the end of its transaction."""

    rows: tuple[Row, ...] = ()
    last: Counts = tuple((group, 0) for group in BOTH)
    held: Holders = ()

    def waiting(self) -> list[WaitingRow]:
        return [WaitingRow((row.key,), None, row.at) for row in self.rows if row.text is None][:AT_ONCE]

    def raised(self, counts: dict[Group, int]) -> Stored:
        return replace(self, last=tuple((group, max(n, counts.get(group, n))) for group, n in self.last))

    def released(self, who: str) -> Stored:
        return replace(self, held=tuple(one for one in self.held if one[1] != who))

    def locked(self, who: str, *names: object) -> Stored:
        return replace(self, held=(*self.held, *((name, who) for name in names)))

    def is_free(self, who: str, name: object) -> bool:
        return dict(self.held).get(name, who) == who


@dataclass(frozen=True)
class Actor:
    """One transaction. `step` is that which comes next; None when it has ended."""

    name: str
    step: int | None = 0

    def moves(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        """The outcomes of its next step; none while it waits for a lock."""
        raise NotImplementedError

    def deaths(self, stored: Stored) -> Iterator[tuple[Stored, Actor]]:
        """What it has not committed is gone."""
        yield from ()

    def ended(self) -> Actor:
        return replace(self, step=None)

    def next(self) -> Actor:
        assert self.step is not None
        return replace(self, step=self.step + 1)


Step = Callable[[Stored, "Rules"], Iterator[tuple[Stored, Actor]]]


@dataclass(frozen=True)
class Writer(Actor):
    """Writes one row: of it nothing is seen before the commit, and after a rollback never."""

    key: int = 0

    def moves(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        if rules.draws_before_the_commit and self.step == 0:
            last = dict(stored.last)[GROUP] + 1
            yield stored.raised({GROUP: last}), replace(self, step=last)
            return
        text = f"2026/{self.step}" if rules.draws_before_the_commit else None
        yield replace(stored, rows=tuple(sorted((*stored.rows, Row(self.key, NOW, text)), key=by_key))), self.ended()
        yield stored, self.ended()


def by_key(row: Row) -> int:
    return row.key


@dataclass(frozen=True)
class Drawer(Actor):
    """Draws a number of each period in its own transaction, the later one first, for two rows."""

    def moves(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        if self.step == len(BOTH):
            counts = {group: n + 1 for group, n in stored.last}
            made = (Row(8, BEFORE, f"2025/{counts[BOTH[0]]}"), Row(9, NOW, f"2026/{counts[BOTH[1]]}"))
            yield replace(stored.raised(counts), rows=(*stored.rows, *made)).released(self.name), self.ended()
        elif stored.is_free(self.name, wanted := BOTH[-1 - (self.step or 0)]):
            yield stored.locked(self.name, wanted), self.next()


@dataclass(frozen=True)
class Mover(Actor):
    """Moves a waiting row to the year before, if nobody holds it."""

    key: int = 0

    def moves(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        if not stored.is_free(self.name, self.key):
            return
        moved = (replace(r, at=BEFORE) if r.key == self.key and r.text is None else r for r in stored.rows)
        yield replace(stored, rows=tuple(moved)), self.ended()


@dataclass(frozen=True)
class Caller(Actor):
    """Assigns numbers to the rows of groups. `last` and `found` are what it has read and not yet written."""

    groups: tuple[Group, ...] = (GROUP,)
    last: Counts = ()
    found: tuple[WaitingRow, ...] = ()

    def moves(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        yield from self.steps()[self.step or 0](stored, rules)

    def steps(self) -> Sequence[Step]:
        return self.lock_counters, self.read, self.lock_rows, self.commit

    def deaths(self, stored: Stored) -> Iterator[tuple[Stored, Actor]]:
        yield stored.released(self.name), self.ended()

    def lock_counters(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        """That of one group, when it is free."""
        if not rules.locks_the_counter:
            yield stored, self.knows(stored, self.groups)
        elif stored.is_free(self.name, *self.groups):
            yield stored.locked(self.name, *self.groups), self.knows(stored, self.groups)

    def knows(self, stored: Stored, groups: Iterable[Group]) -> Actor:
        return replace(self.next(), groups=tuple(groups), last=stored.last)

    def read(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        yield stored, replace(self.next(), found=self.of_groups(stored.waiting()))

    def lock_rows(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        keys = {row.key[0] for row in self.found}
        if not rules.locks_the_rows:
            yield stored, self.next()
        elif all(stored.is_free(self.name, key) for key in keys):
            again = self.of_groups(row for row in stored.waiting() if row.key[0] in keys)
            yield stored.locked(self.name, *(row.key[0] for row in again)), replace(self.next(), found=again)

    def of_groups(self, rows: Iterable[WaitingRow]) -> tuple[WaitingRow, ...]:
        found = in_groups(RULE, None, rows).groups
        return tuple(one.row for group in self.groups for one in found.get(group, ()))

    def commit(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        due, last = in_groups(RULE, None, self.found).groups, dict(self.last)
        counts = {group: last[group] + len(rows) for group, rows in due.items()}
        numbers = chain.from_iterable(numbered(RULE, rows, counts[group]) for group, rows in due.items())
        texts = {key[0]: number.text for key, number in numbers}
        takes = {row.key for row in stored.rows if row.key in texts and (row.text is None or not rules.guards_the_rows)}
        if rules.counts_the_rows and len(takes) != len(texts):
            yield stored.released(self.name), self.ended()
            return
        rows = tuple(replace(row, text=texts[row.key]) if row.key in takes else row for row in stored.rows)
        raised = stored if rules.leaves_the_counter else stored.raised(counts)
        yield replace(raised, rows=rows).released(self.name), self.ended()


@dataclass(frozen=True)
class Together(Caller):
    """Assigns those of two groups of which nobody holds counter or row, where all rows are as it read them before."""

    groups: tuple[Group, ...] = BOTH

    def steps(self) -> Sequence[Step]:
        return self.read, self.lock_counters, self.lock_rows, self.commit

    def lock_counters(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        if rules.waits_for_each_counter:
            yield from self.wait_for_each(stored)
        else:
            free = [group for group in self.groups if stored.is_free(self.name, group)]
            yield stored.locked(self.name, *free), self.knows(stored, free)

    def wait_for_each(self, stored: Stored) -> Iterator[tuple[Stored, Actor]]:
        wanted = next(group for group in self.groups if (group, self.name) not in stored.held)
        if stored.is_free(self.name, wanted):
            is_last = wanted == self.groups[-1]
            yield stored.locked(self.name, wanted), self.knows(stored, self.groups) if is_last else self

    def lock_rows(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        mine = in_groups(RULE, None, self.of_groups(self.found)).groups
        keys = {one.row.key for one in chain.from_iterable(mine.values()) if stored.is_free(self.name, *one.row.key)}
        again = in_groups(RULE, None, (row for row in stored.waiting() if row.key in keys)).groups
        same = tuple(group for group in self.groups if again.get(group) == mine.get(group))
        found = tuple(one.row for group in same for one in again.get(group, ()))
        yield stored.locked(self.name, *(row.key[0] for row in found)), replace(self.next(), groups=same, found=found)


@dataclass(frozen=True)
class Rules:
    """Those of the transactions; False, or True for the last three, breaks one."""

    locks_the_counter: bool = True
    locks_the_rows: bool = True
    guards_the_rows: bool = True
    counts_the_rows: bool = True
    leaves_the_counter: bool = False
    draws_before_the_commit: bool = False
    waits_for_each_counter: bool = False


@dataclass
class Worlds:
    """Every state once."""

    rules: Rules = field(default_factory=Rules)
    seen: set[tuple[Stored, tuple[Actor, ...]]] = field(default_factory=set)
    ended: int = 0

    def visit(self, stored: Stored, actors: tuple[Actor, ...]) -> None:
        if (stored, actors) in self.seen:
            return
        self.seen.add((stored, actors))
        check(stored)
        moved = False
        for at, actor in enumerate(actors):
            if actor.step is None:
                continue
            moves = list(actor.moves(stored, self.rules))
            moved = moved or bool(moves)
            for after, then in (*moves, *actor.deaths(stored)):
                keeps_its_numbers(stored, after)
                self.visit(after, (*actors[:at], then, *actors[at + 1 :]))
        if not moved:
            self.end(stored, actors)

    def end(self, stored: Stored, actors: tuple[Actor, ...]) -> None:
        """All have ended; whoever comes next leaves no row of the group without a number."""
        if any(actor.step is not None for actor in actors):
            raise Violation(f"all wait for each other: {actors}")
        self.ended += 1
        for _ in stored.rows:
            alone: Actor = Together("last")
            while alone.step is not None:
                *_, (stored, alone) = alone.moves(stored, self.rules)
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


def all_of(rules: Rules, *others: Actor) -> Worlds:
    """Two rows are committed; a third is written, before them in order; a caller, and others."""
    worlds = Worlds(rules)
    worlds.visit(Stored((Row(2, NOW), Row(3, NOW))), (Writer("writer", key=1), Caller("a"), *others))
    return worlds
