"""Limit a tag to the ids that its column can hold."""

from __future__ import annotations

import re
from typing import NamedTuple

from allocator.errors import InvalidSetting
from allocator.schemes.shared.argument_checks import MAX_ID, MAX_STEP, check_whole

BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "INTEGER": 32}
TYPE = r"(\w+)(?:\((\d+)(?:, ?(\d+))?\))?( UNSIGNED)?"

LEAST_CLAIMS = 2048
"""The default `max_step` leaves a tag with a low limit at least this many claims, unless its step is larger."""


class Column(NamedTuple):
    """The column that receives the ids.

    limit: the greatest id it can hold.
    name: table, column and type, as `orders.id (INTEGER)`.
    greatest: the greatest value in it.
    """

    limit: int = MAX_ID
    name: str = ""
    greatest: int = 0


class NoColumn(InvalidSetting):
    """There is no such column in the database."""


def limit_of(kind: str) -> int:
    """The greatest id that a column of this SQL type can hold; `MAX_ID` for an unknown type."""
    match = re.match(TYPE, kind.upper())
    if match is None:
        return MAX_ID
    word, digits, scale, unsigned = match.groups()
    if word in ("NUMERIC", "DECIMAL") and digits and scale in (None, "0"):
        return min(MAX_ID, int("9" * int(digits)))
    return (1 << BITS[word] - (not unsigned)) - 1 if word in BITS else MAX_ID


def max_step_for(limit: int, step: int, usual: int) -> int:
    """The default `max_step` of a tag: `usual`, or less where one claim would take too much of a small range."""
    check_whole("step", step, 1, MAX_STEP)
    return min(usual, max(step, check_whole("limit", limit, 1, MAX_ID) // LEAST_CLAIMS))
