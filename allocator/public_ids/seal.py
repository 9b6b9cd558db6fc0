"""What one key makes of an id for the outside: another number, and a check that only this key can make.

    key, prefix, limit  ->  two keys, so that no two prefixes share numbers
    id  ->  number = permutation(id)  ->  number << bits | tag(number)

The permutation alone takes every number for an id. So a tag of so many bits follows: the front of a keyed hash of the
number. What was altered, made up, or made with another key or prefix has the right one by a chance of 2**-bits.

Version 1. The ids in the URLs of customers outlive every release: nothing here may change what it makes, and the tests
hold known answers.
"""

from __future__ import annotations

from hashlib import blake2b

from allocator.public_ids.permutation import Permutation, from_bytes

VERSION = b"allocator-pub-v1"
TAG_BITS = 64


class Seal:
    """Of one key, for one prefix and limit; `bits` is the width of the tag, 0 to 64."""

    __slots__ = ("_bits", "_new_tag", "_permutation", "_spare", "permute", "restore")

    def __init__(self, key: bytes, prefix: str, limit: int, bits: int) -> None:
        both = blake2b(f"{prefix}:{limit}".encode("ascii"), key=key, person=VERSION).digest()
        self._bits = bits
        self._permutation = Permutation(both[:32], limit)
        self._spare = TAG_BITS - bits
        self._new_tag = blake2b(key=both[32:], digest_size=TAG_BITS // 8, person=VERSION).copy
        self.permute = self._permutation.forward
        self.restore = self._permutation.back

    def seal(self, id_: int) -> int:
        number = self.permute(id_)
        return number << self._bits | self._tag(number)

    def open(self, sealed: int) -> int | None:
        """The id, or None for what `seal` never makes."""
        number = sealed >> self._bits
        if not 1 <= number <= self._permutation.limit or sealed != number << self._bits | self._tag(number):
            return None
        return self.restore(number)

    def _tag(self, number: int) -> int:
        tags = self._new_tag()
        tags.update(number.to_bytes(8))
        return from_bytes(tags.digest()) >> self._spare
