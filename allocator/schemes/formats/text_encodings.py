"""Encode numbers as text of one fixed length, so that the length does not show how large a number is.

base62     0-9 A-Z a-z; the number is multiplied by 67, so that a text whose number is no multiple was altered
crockford  0-9 A-Z without I L O U, and a check symbol: the number modulo 37, by the symbols 0-9 A-Z without I L O U
           and * ~ $ = U

Both always detect one replaced character, and two swapped neighbours: 67 and 37 are primes above the size of the
alphabet, so neither divides a difference of two digits times a power of that size, nor that size less one. The factor
is an arithmetic code (Diamond 1955), the symbol is that of Douglas Crockford's Base 32. Crockford's other spellings
(lower case, hyphens, O for 0) are refused: an id has one spelling.
"""

from __future__ import annotations

from functools import cache

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
FACTOR = 67
"""The least prime above 62: see the docstring of this module."""
BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SYMBOLS = BASE32 + "*~$=U"


@cache
def pairs_of(alphabet: str) -> tuple[str, ...]:
    """All pairs of digits, in order: encoding by pairs halves the divisions."""
    return tuple(first + second for first in alphabet for second in alphabet)


class Digits:
    """Numbers in the digits of an alphabet, padded to the length of the greatest one."""

    characters = ""

    def __init__(self, alphabet: str, greatest: int) -> None:
        self._alphabet = alphabet
        self._pairs = pairs_of(alphabet)
        self._fours = len(self._pairs) ** 2  # below 2**30: Python divides by one digit of its own fastest
        self._values = {digit: value for value, digit in enumerate(alphabet)}
        self._count = 1
        while greatest := greatest // len(alphabet):
            self._count += 1
        self.length = self._count

    def format(self, number: int) -> str:
        text, pairs, fours = "", self._pairs, self._fours
        base = len(pairs)
        for _ in range(0, self._count, 4):
            number, four = divmod(number, fours)
            text = f"{pairs[four // base]}{pairs[four % base]}{text}"
        return text[-self._count :]

    def parse(self, text: str) -> int | None:
        """The number of a text of this length; None for a text that `format` never returns."""
        number = 0
        for digit in text:
            value = self._values.get(digit)
            if value is None:
                return None
            number = number * len(self._alphabet) + value
        return number


class Base62(Digits):
    characters = "0-9 A-Z a-z"

    def __init__(self, greatest: int) -> None:
        super().__init__(BASE62, greatest * FACTOR)

    def format(self, number: int) -> str:
        return super().format(number * FACTOR)

    def parse(self, text: str) -> int | None:
        product = super().parse(text)
        return None if product is None or product % FACTOR else product // FACTOR


class Crockford(Digits):
    characters = "0-9 A-Z without I L O U, the last one also of * ~ $ = U"

    def __init__(self, greatest: int) -> None:
        super().__init__(BASE32, greatest)
        self.length += 1

    def format(self, number: int) -> str:
        return super().format(number) + SYMBOLS[number % len(SYMBOLS)]

    def parse(self, text: str) -> int | None:
        number = super().parse(text[:-1])
        return None if number is None or text[-1] != SYMBOLS[number % len(SYMBOLS)] else number
