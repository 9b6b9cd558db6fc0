"""Encode numbers as text of one fixed length, so that the length does not show how large a number is.

The digits are 0-9 A-Z a-z. The number is multiplied by 67 before, so that a text whose number is no multiple was
altered. That always detects one replaced character, and two swapped neighbours: 67 is a prime above the size of the
alphabet, so it divides neither a difference of two digits times a power of that size, nor that size less one. The
factor is an arithmetic code (Diamond 1955).
"""

from __future__ import annotations

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SHOWN = "0-9 A-Z a-z"
FACTOR = 67
"""The least prime above 62: see the docstring of this module."""
BASE = len(DIGITS)
PAIRS = tuple(first + second for first in DIGITS for second in DIGITS)
"""All pairs of digits, in order: encoding by pairs halves the divisions."""
PAIR = len(PAIRS)
FOUR = PAIR**2
"""Below 2**30: Python divides by one digit of its own fastest."""
VALUES = {digit: value for value, digit in enumerate(DIGITS)}


def length_of(greatest: int) -> int:
    """The length of all texts of numbers up to the greatest."""
    length, left = 1, greatest * FACTOR
    while left := left // BASE:
        length += 1
    return length


def encode(number: int, length: int) -> str:
    text, product = "", number * FACTOR
    for _ in range(0, length, 4):
        product, four = divmod(product, FOUR)
        text = f"{PAIRS[four // PAIR]}{PAIRS[four % PAIR]}{text}"
    return text[-length:]


def decode(text: str) -> int | None:
    """The number of a text; None for a text that `encode` never returns."""
    product = 0
    for digit in text:
        value = VALUES.get(digit)
        if value is None:
            return None
        product = product * BASE + value
    return None if product % FACTOR else product // FACTOR
