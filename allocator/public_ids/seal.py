"""Seal an id under one key: permute it, and append a check that needs the key.

    key, prefix, limit  ->  two keys, so that no two prefixes share numbers
    id  ->  number = permutation(id)  ->  number << bits | tag(number)

The permutation alone maps every number to some id. So a tag follows, the first `bits` bits of a keyed hash of the
number. A text that was altered, made up, or made with another key or prefix has the right tag with a chance of
2**-bits.

Version 1. Users' URLs hold these ids, so the output must never change; tests compare known answers.
"""

from __future__ import annotations

from hashlib import blake2b

from allocator.public_ids.permutation import Permutation, from_bytes

VERSION = b"allocator-pub-v1"
"""A later version makes other texts with the same key: this is part of both hashes."""
TAG_BITS = 64


class Seal:
    """The sealing of ids under one key, prefix and limit; `bits` is the width of the tag, 0 to 64."""

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
        """The id, or None for a number that `seal` never returns."""
        number = sealed >> self._bits
        if not 1 <= number <= self._permutation.limit or sealed != number << self._bits | self._tag(number):
            return None
        return self.restore(number)

    def _tag(self, number: int) -> int:
        tags = self._new_tag()
        tags.update(number.to_bytes(8))
        return from_bytes(tags.digest()) >> self._spare
