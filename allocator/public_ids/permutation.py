"""A keyed permutation of the ids, to the numbers that outsiders see, and back.

    id in 1..limit  ->  left | right halves of its bits  ->  10 rounds  ->  another id in 1..limit

Each round XORs one half with a keyed hash of the other, in turn: a Feistel network, which is one to one for any hash,
so two ids never get the same number. It has as many bits as the limit. A result outside of 1..limit goes through the
rounds again until it falls inside (cycle walking), fewer than twice on average. The hash is keyed BLAKE2b.

Why ten rounds, with halves of 32 bits: three resist attackers who choose far fewer than 2**16 ids, and four resist
those who choose numbers too (Luby and Rackoff 1988). Six resist up to 2**32 (Patarin 2004). Eight were too few for FF3
on small domains (Durak and Vaudenay 2017; Hoang, Tessaro and Trieu 2018). FF1 of NIST SP 800-38G, of the same
structure, has ten.
"""

from __future__ import annotations

from hashlib import blake2b

ROUNDS = 10
"""The docstring of this module says why."""

LEAST_LIMIT = 1_000_000
"""The least domain by NIST SP 800-38G Rev. 1: in a smaller one, a few known pairs would let others be guessed."""

PERSON = b"allocator-public"
"""Keeps these hashes apart from any other use of BLAKE2b with the same key."""

from_bytes = int.from_bytes  # bound once for speed; the byte order is the default, "big", as in to_bytes


class Permutation:
    """A permutation of 1 to `limit`, below 2**64, under a key of at most 64 bytes."""

    __slots__ = ("_left", "_low", "_right", "_rounds", "limit")

    def __init__(self, key: bytes, limit: int) -> None:
        self.limit = limit
        width = limit.bit_length()
        self._low = (width + 1) // 2
        self._right = (1 << self._low) - 1
        self._left = (1 << (width - self._low)) - 1
        states = [blake2b(bytes([number]), key=key, digest_size=8, person=PERSON) for number in range(ROUNDS)]
        copies = [state.copy for state in states]  # copying a prepared state costs half of creating one
        self._rounds = list(zip(copies[::2], copies[1::2], strict=True))

    def forward(self, number: int) -> int:
        """The number that stands for an id."""
        while True:
            number = self._through(number)
            if 1 <= number <= self.limit:
                return number

    def back(self, number: int) -> int:
        """The id for which a number stands."""
        while True:
            number = self._through_backwards(number)
            if 1 <= number <= self.limit:
                return number

    def _through(self, number: int) -> int:
        """Apply the rounds. Unrolled by two and inlined, since they are most of the cost of an id."""
        left, right = number >> self._low, number & self._right
        left_bits, right_bits = self._left, self._right
        for first, second in self._rounds:
            state = first()
            state.update(right.to_bytes(4))
            left ^= from_bytes(state.digest()) & left_bits
            state = second()
            state.update(left.to_bytes(4))
            right ^= from_bytes(state.digest()) & right_bits
        return left << self._low | right

    def _through_backwards(self, number: int) -> int:
        left, right = number >> self._low, number & self._right
        left_bits, right_bits = self._left, self._right
        for first, second in reversed(self._rounds):
            state = second()
            state.update(left.to_bytes(4))
            right ^= from_bytes(state.digest()) & right_bits
            state = first()
            state.update(right.to_bytes(4))
            left ^= from_bytes(state.digest()) & left_bits
        return left << self._low | right
