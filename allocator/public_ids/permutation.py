"""A keyed permutation of the ids: the number that outsiders see, and back.

    id in 1..limit  ->  left | right halves of its bits  ->  10 rounds  ->  another id in 1..limit

Each round adds (XOR) to one half a keyed hash of the other, in turn: a Feistel network, which is one to one whatever
the hash does, so that two ids never get one number. Its bits are those of the limit, and a number that falls outside
1..limit is taken through the rounds again until it falls inside (cycle walking), fewer than twice on average. The hash
is BLAKE2b under a secret key.

Why ten rounds. Three withstand whoever may choose ids, and four whoever may choose numbers too, as long as they have
far fewer than 2**16, with halves of 32 bits (Luby and Rackoff 1988); six do below 2**32 (Patarin 2004). Eight were too
few for FF3 on small domains (Durak and Vaudenay 2017; Hoang, Tessaro and Trieu 2018). FF1 of NIST SP 800-38G, which has
the same shape, has ten.
"""

from __future__ import annotations

from hashlib import blake2b

ROUNDS = 10

LEAST_LIMIT = 1_000_000
"""NIST SP 800-38G Rev. 1 asks for so many numbers: of fewer, somebody who knows a few pairs could guess others."""

PERSON = b"allocator-public"

from_bytes = int.from_bytes  # bound once; the byte order is "big", the default, as of to_bytes


class Permutation:
    """Of the whole numbers from 1 to `limit`, which is below 2**64. The key has at most 64 bytes."""

    __slots__ = ("_left", "_low", "_right", "_rounds", "limit")

    def __init__(self, key: bytes, limit: int) -> None:
        self.limit = limit
        width = limit.bit_length()
        self._low = (width + 1) // 2
        self._right = (1 << self._low) - 1
        self._left = (1 << (width - self._low)) - 1
        states = [blake2b(bytes([number]), key=key, digest_size=8, person=PERSON) for number in range(ROUNDS)]
        copies = [state.copy for state in states]  # a prepared state is copied, at half the cost of a new one
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
            number = self._through_again(number)
            if 1 <= number <= self.limit:
                return number

    def _through(self, number: int) -> int:
        """Each round hashes one half, to 64 bits. Written out, since this is most of what an id costs."""
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

    def _through_again(self, number: int) -> int:
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
