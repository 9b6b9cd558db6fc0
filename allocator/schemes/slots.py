"""THE SLOT RULE: how several databases number together, each in one residue of everything that it numbers.

A fleet has S slots, for ever. The database in slot k gives the numbers that are congruent to k modulo S: ids of tags
and tickets; of its n-th node the number (n - 1) * S + k; the worker numbers n with n modulo S = k - 1.

    make    the one database that gave ids so far becomes slot 1; from then on it gives numbers of its residue alone
    add     a new database begins above all that any member ever gave, in a residue that nobody has

So no number of another residue is given but by its own slot, and the others number as before when one is added. A
slot is never given twice: each row lists those that are taken, as far as it knows, and `add` asks all of them.

A row can be copied, restored and confused with another. So a URL among several says fleet and slot, and a database
whose row says otherwise is not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from allocator.errors import InvalidDatabase, ShardMisconfigured
from allocator.schemes.failover import UNMOVED, Move
from allocator.schemes.shared.residues import ALL, MAX_SLOTS, Residue
from allocator.schemes.ticket import CLAIM

WORD = re.compile(r"([0-9a-f]{8})\.([1-9][0-9]?)")
ARGUMENT = "shard"
"""The argument of a URL that says fleet and slot."""


class Word(NamedTuple):
    """What a URL says of its database."""

    fleet: str
    slot: int

    def __str__(self) -> str:
        return f"{self.fleet}.{self.slot}"


@dataclass(frozen=True, slots=True)
class Shard:
    """The row of `allocator_shard`.

    fleet: the fleet's random key; empty for a database alone.
    residue: of all that the database numbers: its slot, and the number of slots.
    taken: the slots that were ever given, as far as this row knows. One that is lost for good is negative.
    taken_under: the key of the move under which `taken` was written; a failover may have forgotten a later one.
    taken_for: the key of the move of the new database that the last of them was taken for: no other may have it.
    tickets: how this database draws them. No other slot has to do the same.
    """

    fleet: str = ""
    residue: Residue = ALL
    taken: tuple[int, ...] = ()
    taken_under: int = 0
    taken_for: int = 0
    tickets: str = CLAIM
    move: Move = UNMOVED

    @property
    def word(self) -> Word | None:
        return Word(self.fleet, self.residue.offset) if self.fleet else None


def word_of(text: str) -> Word:
    found = WORD.fullmatch(text)
    if not found:
        raise InvalidDatabase(
            f"{ARGUMENT}={text!a:.40} is no fleet and slot, such as 7f3a91c2.2; allocator shards list prints them"
        )
    return Word(found[1], int(found[2]))


def check_list(words: Sequence[tuple[str, Word | None]]) -> None:
    """Raise unless several URLs, each with its word, are slots of one fleet. Before anything is read."""
    known: dict[Word, str] = {}
    for where, word in words if words[1:] else ():
        if word is None:
            raise InvalidDatabase(
                f"{where} is one of several databases, and its URL does not say its slot; allocator shards list prints "
                f"what to write, such as ?{ARGUMENT}=7f3a91c2.2; to make a fleet: allocator shards make --slots S"
            )
        if word in known:
            raise InvalidDatabase(f"{known[word]} and {where} both say slot {word}; list each slot once")
        known[word] = where
    first = words[0][1]
    for where, word in words:
        if first and word and word.fleet != first.fleet:
            raise InvalidDatabase(
                f"{words[0][0]} is of fleet {first.fleet}, and {where} of {word.fleet}; list one fleet"
            )


def check_word(where: str, word: Word, row: Shard) -> None:
    """Raise where the row is not what its URL says."""
    if word == row.word:
        return
    if row.fleet:
        raise ShardMisconfigured(
            f"the URL of {where} says slot {word}, and the database is slot {row.word}: it is another one, or a copy; "
            "check the URL, and never use a copy beside its original"
        )
    raise ShardMisconfigured(
        f"the URL of {where} says slot {word}, and the database is in no fleet; if it is new: allocator shards add URL "
        "--slot K. If it was restored from before it was added, empty it, and add it under another slot"
    )


def union(*taken: Iterable[int]) -> tuple[int, ...]:
    """The slots of several rows. One that any of them knows as lost is lost."""
    known = set().union(*taken)
    return tuple(sorted(known - {-slot for slot in known if slot < 0}, key=abs))


def unasked(rows: Iterable[Shard]) -> list[int]:
    """The slots that are taken and not lost, and whose rows these are not."""
    rows = list(rows)
    asked = {row.residue.offset for row in rows}
    return [slot for slot in union(*(row.taken for row in rows)) if slot > 0 and slot not in asked]


def check_all(rows: Sequence[Shard], what: str) -> None:
    """Raise where a change that must reach every slot would miss one."""
    if missing := unasked(rows):
        raise ShardMisconfigured(
            f"{what} needs the database of every slot, and slot {', '.join(map(str, missing))} was not given or asked; "
            "run it again with the URLs of all slots"
        )


def is_sure(rows: Iterable[Shard]) -> bool:
    """Whether a row has forgotten no slot. A word of the operator's about one slot makes no row sure of the others."""
    return any(row.taken_under == row.move.key for row in rows)


def check_slots(slots: int) -> None:
    if not 2 <= slots <= MAX_SLOTS:
        raise ShardMisconfigured(f"a fleet has 2 to {MAX_SLOTS} slots, got {slots}")


def check_addition(rows: Sequence[Shard], slot: int, without: Iterable[int], is_unused: bool) -> None:
    """Raise unless a database may be added as `slot` to the fleet whose rows these are.

    without: slots that are lost for good. is_unused: the operator vouches that nothing was ever given under the slot.
    """
    slots, taken = rows[0].residue.step, union(*(row.taken for row in rows))
    if not rows[0].fleet or len({row.fleet for row in rows}) > 1:
        raise ShardMisconfigured("these databases are no fleet; make one first: allocator shards make --slots S")
    if missing := set(unasked(rows)) - {*without, *([slot] if is_unused else [])}:
        raise ShardMisconfigured(
            f"slot {', '.join(map(str, sorted(missing)))} must answer too: give its URL, or --without SLOT if its "
            "database is lost and never comes back"
        )
    if answers := {row.residue.offset for row in rows} & {*without}:
        raise ShardMisconfigured(f"slot {min(answers)} answers, so it is not lost; leave --without {min(answers)} out")
    if not 1 <= slot <= slots:
        raise ShardMisconfigured(f"the fleet has the slots 1 to {slots}, got {slot}")
    if is_unused and -slot not in taken and slot not in {row.residue.offset for row in rows}:
        return
    if {slot, -slot} & {*taken}:
        raise ShardMisconfigured(
            f"slot {slot} is taken, and no slot is used again; take another. If an addition of it has failed, and no "
            "id was ever given under it: --unused"
        )
    if not is_sure(rows):
        raise ShardMisconfigured(
            "each database moved to another server since a slot was last added, and may have forgotten that one; if "
            f"slot {slot} was never added: --unused"
        )
