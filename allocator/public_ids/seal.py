"""Seal an id under one key: a keyed permutation, and a check that needs the key.

    key, prefix  ->  two keys, so that no two prefixes share numbers
    id  ->  number = permutation(id)  ->  number << CHECK | tag(number)

    id in 1..limit  ->  left | right halves of its bits  ->  10 rounds  ->  another id in 1..limit

Each round XORs one half with a keyed hash of the other, in turn: a Feistel network, which is one to one for any hash,
so two ids never get the same number. It has as many bits as the limit. A result outside of 1..limit goes through the
rounds again until it falls inside (cycle walking), fewer than twice on average. The hash is keyed BLAKE2b.

Why ten rounds, with halves of 32 bits: three resist attackers who choose far fewer than 2**16 ids, and four resist
those who choose numbers too (Luby and Rackoff 1988). Six resist up to 2**32 (Patarin 2004). Eight were too few for FF3
on small domains (Durak and Vaudenay 2017; Hoang, Tessaro and Trieu 2018). FF1 of NIST SP 800-38G, of the same
structure, has ten.

The permutation alone maps every number to some id. So a tag follows, the first `CHECK` bits of a keyed hash of the
number. A text that was altered, made up, or made with another key or prefix has the right tag with a chance of
2**-CHECK.

Version 1. Users' URLs hold these ids, so the output must never change; tests compare known answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from allocator.schemes.shared.argument_checks import MAX_ID

ROUNDS = 10
"""The docstring of this module says why."""

PERSON = b"allocator-public"
"""Keeps these hashes apart from any other use of BLAKE2b with the same key."""
VERSION = b"allocator-pub-v1"
"""A later version makes other texts with the same key: this is part of the derived keys and of the tag."""
TAG_BITS = 64
CHECK = 26
"""Bits of the tag: the most that fit into 16 characters of base62."""

from_bytes = int.from_bytes  # bound once for speed; the byte order is the default, "big", as in to_bytes


class Permutation:
    """A permutation of 1 to `limit`, below 2**64, under a key of at most 64 bytes."""

    __slots__ = ("_left", "_low", "_right", "_rounds", "_rounds_back", "limit")

    def __init__(self, key: bytes, limit: int) -> None:
        self.limit = limit
        width = limit.bit_length()
        self._low = (width + 1) // 2
        self._right = (1 << self._low) - 1
        self._left = (1 << (width - self._low)) - 1
        states = [blake2b(bytes([number]), key=key, digest_size=8, person=PERSON) for number in range(ROUNDS)]
        copies = [state.copy for state in states]  # copying a prepared state costs half of creating one
        self._rounds = list(zip(copies[::2], copies[1::2], strict=True))
        self._rounds_back = list(zip(copies[::-2], copies[-2::-2], strict=True))

    def forward(self, number: int) -> int:
        """The number that stands for an id."""
        while True:
            left, right = through(self._rounds, number >> self._low, number & self._right, self._left, self._right)
            number = left << self._low | right
            if 1 <= number <= self.limit:
                return number

    def back(self, number: int) -> int:
        """The id for which a number stands: the rounds in reverse, with the halves exchanged."""
        while True:
            right, left = through(self._rounds_back, number & self._right, number >> self._low, self._right, self._left)
            number = left << self._low | right
            if 1 <= number <= self.limit:
                return number


def through(rounds: Iterable[Any], one: int, other: int, one_bits: int, other_bits: int) -> tuple[int, int]:
    """The two halves after all rounds. Unrolled by two and inlined, since they are most of the cost of an id."""
    for first, second in rounds:
        state = first()
        state.update(other.to_bytes(4))
        one ^= from_bytes(state.digest()) & one_bits
        state = second()
        state.update(one.to_bytes(4))
        other ^= from_bytes(state.digest()) & other_bits
    return one, other


class Seal:
    """The sealing of ids under one key, and prefix. No sealed number is above `greatest`."""

    __slots__ = ("_new_tag", "_permutation", "greatest")

    def __init__(self, key: bytes, prefix: str) -> None:
        both = blake2b(f"{prefix}:{MAX_ID}".encode("ascii"), key=key, person=VERSION).digest()
        self.greatest = (MAX_ID + 1 << CHECK) - 1
        self._permutation = Permutation(both[:32], MAX_ID)
        self._new_tag = blake2b(key=both[32:], digest_size=TAG_BITS // 8, person=VERSION).copy

    def seal(self, id_: int) -> int:
        number = self._permutation.forward(id_)
        return number << CHECK | self._tag(number)

    def open(self, sealed: int) -> int | None:
        """The id, or None for a number that `seal` never returns."""
        number = sealed >> CHECK
        if not 1 <= number <= MAX_ID or sealed != number << CHECK | self._tag(number):
            return None
        return self._permutation.back(number)

    def _tag(self, number: int) -> int:
        tags = self._new_tag()
        tags.update(number.to_bytes(8))
        return from_bytes(tags.digest()) >> TAG_BITS - CHECK
