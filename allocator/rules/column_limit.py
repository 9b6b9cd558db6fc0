"""A tag's limit follows its column: no id is greater than the column can hold."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from allocator.schemes.checks import MAX_ID, MAX_STEP, check_whole
from allocator.schemes.tag import Tag

BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "INTEGER": 32}
TYPE = re.compile(r"(\w+)(?:\((\d+)(?:, ?(\d+))?\))?( UNSIGNED)?")

LEAST_CLAIMS = 2048
"""A tag with a low limit lasts for at least this many claims of its greatest size, unless its step is greater."""


class Column(NamedTuple):
    """A column that ids go into.

    limit: the greatest id it can hold.
    name: with its type, as `orders.id (INTEGER)`.
    greatest: the greatest value in it.
    """

    limit: int = MAX_ID
    name: str = ""
    greatest: int = 0


def limit_of(kind: str) -> int:
    """The greatest id that a column of this SQL type can hold; `MAX_ID` for a type that is not known."""
    match = TYPE.match(kind.upper())
    if match is None:
        return MAX_ID
    word, digits, scale, unsigned = match.groups()
    if word in ("NUMERIC", "DECIMAL") and digits and scale in (None, "0"):
        return min(MAX_ID, int("9" * int(digits)))
    return (1 << BITS[word] - (not unsigned)) - 1 if word in BITS else MAX_ID


def max_step_for(limit: int, step: int, usual: int) -> int:
    """The default `max_step` of a tag: the usual one, or less, so that one claim takes little of a small range."""
    check_whole("step", step, 1, MAX_STEP)
    return min(usual, max(step, check_whole("limit", limit, 1, MAX_ID) // LEAST_CLAIMS))


def narrowed(tag: Tag, limit: int) -> Tag:
    """`tag` with this limit at most, and with smaller claims where that is low."""
    if limit >= tag.limit:
        return tag
    return replace(tag, limit=limit, max_step=max_step_for(limit, tag.step, tag.max_step))
