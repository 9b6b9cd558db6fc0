"""The smallest world of rows that wait for a number, and everything that can happen in it.

Writers write a row in a transaction, which commits or rolls back. Callers of `assign` lock the counter, read the rows,
lock them, and write counter and numbers in one transaction. Their steps interleave in every order; a caller may die
before each step, and a row may move to another period while it waits. The rule is the real one; the database is rows
with locks, whose statements see what is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date

from allocator.schemes.gapless_numbers import Group, NumberFormat, NumberRule
from allocator.schemes.waiting_numbers import WaitingRow, in_groups, numbered
from simulation.violation import Violation

RULE = NumberRule("invoice", NumberFormat("{year}/{n}"), "year")
NOW, BEFORE = date(2026, 1, 1), date(2025, 1, 1)
GROUP = Group("", "2026")
AT_ONCE = 2


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
    last: int = 0
    counter_of: str = ""
    row_of: tuple[tuple[int, str], ...] = ()

    def waiting(self) -> list[WaitingRow]:
        return [WaitingRow((row.key,), None, row.at) for row in self.rows if row.text is None][:AT_ONCE]

    def released(self, who: str) -> Stored:
        counter_of = "" if self.counter_of == who else self.counter_of
        return replace(self, counter_of=counter_of, row_of=tuple(held for held in self.row_of if held[1] != who))

    def holds(self, key: int) -> str:
        return dict(self.row_of).get(key, "")


@dataclass(frozen=True)
class Actor:
    """One transaction. `step` is that which comes next; None when it has ended."""

    name: str
    step: int | None = 0

    def moves(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        """The outcomes of its next step; none while it waits for a lock."""
        raise NotImplementedError

    def ended(self) -> Actor:
        return replace(self, step=None)

    def next(self) -> Actor:
        assert self.step is not None
        return replace(self, step=self.step + 1)


@dataclass(frozen=True)
class Writer(Actor):
    """Writes one row: of it nothing is seen before the commit, and after a rollback never."""

    key: int = 0

    def moves(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        if rules.draws_before_the_commit and self.step == 0:
            yield replace(stored, last=stored.last + 1), replace(self, step=stored.last + 1)
            return
        text = f"2026/{self.step}" if rules.draws_before_the_commit else None
        yield replace(stored, rows=tuple(sorted((*stored.rows, Row(self.key, NOW, text)), key=by_key))), self.ended()
        yield stored, self.ended()


def by_key(row: Row) -> int:
    return row.key


@dataclass(frozen=True)
class Mover(Actor):
    """Moves a waiting row to the year before, if nobody holds it."""

    key: int = 0

    def moves(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        if stored.holds(self.key):
            return
        moved = (replace(r, at=BEFORE) if r.key == self.key and r.text is None else r for r in stored.rows)
        yield replace(stored, rows=tuple(moved)), self.ended()


@dataclass(frozen=True)
class Caller(Actor):
    """Assigns numbers to the rows of 2026. `last` and `found` are what it has read and not yet written."""

    last: int = 0
    found: tuple[WaitingRow, ...] = ()

    def moves(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        yield stored.released(self.name), self.ended()  # it dies; what it has not committed is gone
        yield from [self.lock_counter, self.read, self.lock_rows, self.commit][self.step or 0](stored, rules)

    def lock_counter(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        if not rules.locks_the_counter:
            yield stored, replace(self.next(), last=stored.last)
        elif not stored.counter_of:
            yield replace(stored, counter_of=self.name), replace(self.next(), last=stored.last)

    def read(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        yield stored, replace(self.next(), found=tuple(self.of_group(stored.waiting())))

    def lock_rows(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        keys = [row.key[0] for row in self.found]
        if not rules.locks_the_rows:
            yield stored, self.next()
        elif all(stored.holds(key) in {"", self.name} for key in keys):
            again = self.of_group(row for row in stored.waiting() if row.key[0] in keys)
            held = (*stored.row_of, *((row.key[0], self.name) for row in again))
            yield replace(stored, row_of=held), replace(self.next(), found=tuple(again))

    def of_group(self, rows: object) -> list[WaitingRow]:
        return [one.row for one in in_groups(RULE, None, rows).groups.get(GROUP, [])]

    def commit(self, stored: Stored, rules: Rules) -> Iterator[tuple[Stored, Actor]]:
        due = in_groups(RULE, None, self.found).groups.get(GROUP, [])
        last = self.last + len(due)
        texts = {key[0]: number.text for key, number in numbered(RULE, due, last)}
        takes = {row.key for row in stored.rows if row.key in texts and (row.text is None or not rules.guards_the_rows)}
        if rules.counts_the_rows and len(takes) != len(texts):
            yield stored.released(self.name), self.ended()
            return
        rows = tuple(replace(row, text=texts[row.key]) if row.key in takes else row for row in stored.rows)
        raised = stored if rules.leaves_the_counter else replace(stored, last=max(stored.last, last))
        yield replace(raised, rows=rows).released(self.name), self.ended()


@dataclass(frozen=True)
class Rules:
    """Those of the transactions; False, or True for the last two, breaks one."""

    locks_the_counter: bool = True
    locks_the_rows: bool = True
    guards_the_rows: bool = True
    counts_the_rows: bool = True
    leaves_the_counter: bool = False
    draws_before_the_commit: bool = False


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
            for after, then in actor.moves(stored, self.rules):
                moved = True
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
            alone: Actor = Caller("last")
            while alone.step is not None:
                *_, (stored, alone) = alone.moves(stored, self.rules)
        check(stored)
        if any(row.at == NOW and row.text is None for row in stored.rows):
            raise Violation(f"a row is left without a number: {stored.rows}")


def check(stored: Stored) -> None:
    """No gap, no duplicate, and each text of the row's own year, in what is committed."""
    texts = [row.text for row in stored.rows if row.text is not None]
    if len(texts) != len(set(texts)):
        raise Violation(f"a number came twice: {texts}")
    if sorted(texts) != [f"2026/{n}" for n in range(1, stored.last + 1)]:
        raise Violation(f"numbers {texts} have a gap, or the counter is at {stored.last}")
    if any(row.at != NOW for row in stored.rows if row.text is not None):
        raise Violation(f"a number of another year: {stored.rows}")


def keeps_its_numbers(before: Stored, after: Stored) -> None:
    texts = {row.key: row.text for row in after.rows}
    changed = [row for row in before.rows if row.text not in {None, texts[row.key]}]
    if changed:
        raise Violation(f"a row got another number: {changed}")


def all_of(rules: Rules, *, moves: bool = True) -> Worlds:
    """Two rows are committed; a third is written, before them in order; two callers; one row moves."""
    worlds = Worlds(rules)
    actors = (Writer("writer", key=1), Caller("a"), Caller("b"), *([Mover("mover", key=2)] if moves else []))
    worlds.visit(Stored((Row(2, NOW), Row(3, NOW))), actors)
    return worlds
