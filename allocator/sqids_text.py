"""Sealed numbers as Sqids, by the library of that name: the number and its tag, padded to one length.

The library leaves out texts with rude words in them, by a list of its own: another list would write some numbers
otherwise, and refuse texts that customers have. So the list is that of version 1, or nothing is written.
"""

from __future__ import annotations

from hashlib import blake2b

from allocator.errors import InvalidSetting

WORDS = "d51e6e24ff0ba3c6"
"""Of the library's list, in versions 0.5.0 to 0.5.2."""


class SqidsText:
    """See `allocator.schemes.alphabets.Form`; of numbers up to a limit, with a tag of so many bits behind them."""

    shown = "0-9 A-Z a-z, as Sqids"

    def __init__(self, limit: int, bits: int) -> None:
        try:
            from sqids import Sqids
            from sqids.constants import DEFAULT_BLOCKLIST
        except ModuleNotFoundError:
            raise InvalidSetting(
                "text='sqids' needs sqids, which is not installed; pip install 'allocator[sqids]'"
            ) from None
        if fingerprint(DEFAULT_BLOCKLIST) != WORDS:
            raise InvalidSetting("this version of sqids leaves out other words than 0.5.2: some texts would change")
        self._bits, self._greatest = bits, (limit, (1 << bits) - 1)
        self.length = len(Sqids().encode(self._greatest))
        self._codec = Sqids(min_length=self.length)

    def write(self, number: int) -> str:
        return self._codec.encode((number >> self._bits, number & self._greatest[1]))

    def read(self, text: str) -> int | None:
        """The library reads several texts as one number, of which it writes only one."""
        found = self._codec.decode(text)
        if len(found) != 2 or any(map(int.__gt__, found, self._greatest)) or self._codec.encode(found) != text:
            return None
        return found[0] << self._bits | found[1]


def fingerprint(words: list[str]) -> str:
    return blake2b(" ".join(sorted(words)).encode(), digest_size=8).hexdigest()
