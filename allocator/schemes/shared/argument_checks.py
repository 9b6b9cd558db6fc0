"""Validation of tags, counts and settings, with the messages for invalid ones.

tag      [A-Za-z0-9][A-Za-z0-9_.:-]{0,63}, compared byte by byte
id       1 to 2**63 - 1 (a signed 64-bit column), or to 2**53 - 1 for JavaScript
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import index
from typing import SupportsIndex

from allocator.errors import InvalidArgument, InvalidCount, InvalidSetting, InvalidTag

MAX_ID = 2**63 - 1
JAVASCRIPT_MAX_ID = 2**53 - 1
"""The greatest integer that a double, and so JavaScript, holds exactly (`Number.MAX_SAFE_INTEGER`)."""

MAX_IDS_A_CALL = 10_000
"""`next_ids` builds a list; for more ids, `reserve` returns a `range`."""
MAX_RESERVE = 10_000_000
"""A call whose answer is lost burns the whole block."""
MAX_STEP = 100_000_000
"""A restart burns what was claimed: at this size, 9 * 10**10 restarts use up all ids below 2**63."""
MAX_SECONDS = 86_400.0
"""A day, which every platform can wait for: `poll` counts milliseconds in 31 bits, and ends at 24 days."""
QUOTED_BITS = 128
"""39 digits, which fit into a message. `repr` refuses an integer of more than 4300 digits."""

TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", re.ASCII)


def check_tag(tag: object) -> str:
    if isinstance(tag, str) and (match := TAG.fullmatch(tag)):
        return match.group()  # a plain str, also for a StrEnum
    got = quoted(tag, 81, ascii)
    got = got if len(got) <= 80 else f"{got[:77]}..."
    raise InvalidTag(
        f"a tag is 1 to 64 of the characters A-Z a-z 0-9 _ . : - and begins with a letter or digit, got {got}"
    )


def check_whole(
    name: str, value: object, low: int, high: int, error: type[InvalidArgument] = InvalidSetting, hint: str = ""
) -> int:
    if type(value) is not int:  # bool is a subclass of int; a str cannot be compared
        raise error(f"{name} must be a whole number from {low} to {high}, got {quoted(value)}")
    if not low <= value <= high:
        raise error(f"{name} must be {low} to {high}, got {quoted(value)}{hint}")
    return value


def integer(value: object) -> object:
    """The int that equals an integer of another type, such as NumPy's; anything else as it is, also a bool."""
    if type(value) is int or isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return value
    try:
        return index(value)
    except TypeError:  # as of a NumPy array
        return value


def quoted(value: object, most: int = 80, form: Callable[[object], str] = repr) -> str:
    """A value as text for a message, at most `most` characters. Never raises, though `repr` does for huge integers."""
    if isinstance(value, int) and value.bit_length() > QUOTED_BITS:
        return f"a number of {value.bit_length()} bits"
    try:
        return form(value)[:most]
    except Exception:  # the __repr__ of the value, or of an element, failed
        return f"a {type(value).__name__} whose repr() fails"


PART = re.compile(r'"(?:[^"]|"")+"(?=\.|$)|`(?:[^`]|``)+`(?=\.|$)|[^.]+')
"""A part of a name between dots; in quotes it may hold dots itself."""


def split_column(name: object) -> tuple[str, str]:
    """The table as it was written, with its schema if that is named, and the column without its quotes."""
    parts = PART.findall(name) if isinstance(name, str) else []
    if len(parts) < 2 or ".".join(parts) != name:
        raise InvalidSetting(
            f"a column is named table.column or schema.table.column, a part with a dot in quotes, got {quoted(name)}"
        )
    return ".".join(parts[:-1]), unquoted(parts[-1])


def split_table(name: str) -> tuple[str, str]:
    """The schema, "" for none, and the table, both without their quotes."""
    *schema, table = map(unquoted, PART.findall(name))
    return ".".join(schema), table


def unquoted(part: str) -> str:
    """A part of a name as the database has it."""
    quote = part[0]
    is_quoted = quote in '"`' and len(part) > 2 and part[-1] == quote
    return part[1:-1].replace(2 * quote, quote) if is_quoted else part


def in_quotes(part: str) -> str:
    """A part of a name, as `split_column` takes it."""
    return f'"{part}"' if "." in part else part


def check_count(count: object) -> int:
    return check_whole("count", integer(count), 1, MAX_IDS_A_CALL, InvalidCount, "; for larger blocks use reserve()")


def check_reserve(count: object) -> int:
    return check_whole("count", integer(count), 1, MAX_RESERVE, InvalidCount)


def check_seconds(name: str, value: object, low: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidSetting(f"{name} must be a number of seconds, got {quoted(value)}")
    if not low <= value <= MAX_SECONDS:  # also true for NaN
        raise InvalidSetting(f"{name} must be {low:g} to {MAX_SECONDS:g} seconds, got {quoted(value)}")
    return float(value)
