"""Numbers as text of one fixed length, of which each number has exactly one: a length would tell how large it is.

base62     0-9 A-Z a-z, and the number is multiplied by 67: what is no multiple was altered
crockford  0-9 A-Z without I L O U, and a check symbol: the number modulo 37, by the symbols 0-9 A-Z without I L O U
           and * ~ $ = U

Both refuse for sure one character that is replaced by another, and two neighbours that are swapped. 67 and 37 are
primes above the size of the alphabet, so that neither divides a difference of two digits times a power of that size,
nor that size less one. The factor is an arithmetic code (Diamond 1955), the symbol that of Douglas Crockford's Base 32.
His spellings for people, in lower case, with hyphens, or O for 0, are not read: an id has one spelling.
"""

from __future__ import annotations

from typing import Protocol

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
FACTOR = 67
BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SYMBOLS = BASE32 + "*~$=U"


class Form(Protocol):
    """A text form of the numbers from 0 to a greatest one."""

    length: int
    shown: str
    """Its characters, for a person."""

    def write(self, number: int) -> str: ...

    def read(self, text: str) -> int | None:
        """The number of a text of this length; None for what `write` never makes."""


class Digits:
    """Numbers by the digits of an alphabet, as many as the greatest one needs."""

    def __init__(self, alphabet: str, greatest: int) -> None:
        self._alphabet = alphabet
        self._values = {digit: value for value, digit in enumerate(alphabet)}
        self.length = length(greatest, len(alphabet))

    def write(self, number: int) -> str:
        digits = []
        for _ in range(self.length):
            number, digit = divmod(number, len(self._alphabet))
            digits.append(self._alphabet[digit])
        return "".join(reversed(digits))

    def read(self, text: str) -> int | None:
        number = 0
        for digit in text:
            value = self._values.get(digit)
            if value is None:
                return None
            number = number * len(self._alphabet) + value
        return number


def length(greatest: int, base: int) -> int:
    digits = 1
    while greatest := greatest // base:
        digits += 1
    return digits


class Base62:
    shown = "0-9 A-Z a-z"

    def __init__(self, greatest: int) -> None:
        self._digits = Digits(BASE62, greatest * FACTOR)
        self.length = self._digits.length
        self.write = lambda number: self._digits.write(number * FACTOR)

    def read(self, text: str) -> int | None:
        found = self._digits.read(text)
        return None if found is None or found % FACTOR else found // FACTOR


class Crockford:
    shown = "0-9 A-Z without I L O U, the last one also of * ~ $ = U"

    def __init__(self, greatest: int) -> None:
        self._digits = Digits(BASE32, greatest)
        self.length = self._digits.length + 1

    def write(self, number: int) -> str:
        return self._digits.write(number) + SYMBOLS[number % len(SYMBOLS)]

    def read(self, text: str) -> int | None:
        found = self._digits.read(text[:-1])
        return None if found is None or text[-1] != SYMBOLS[found % len(SYMBOLS)] else found
