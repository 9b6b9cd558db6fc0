"""Formats numbers for people. Pure."""

from __future__ import annotations

from math import isinf

THIN = "\u202f"
"""A narrow no-break space: a line never breaks within a number."""
NONE = ""
"""For a cell of a table; a tile shows a dash."""

MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86_400.0, 365.25
CENTURY = 100 * YEAR


def count(number: int | None) -> str:
    return NONE if number is None else f"{number:,}".replace(",", THIN)


def rate(value: float | None) -> str:
    """Format ids per second."""
    if value is None or value < 0.005:
        return NONE
    if value < 10:
        return f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"
    return count(round(value))


def latency(seconds: float | None) -> str:
    if not seconds:
        return NONE
    if seconds >= 1:
        return f"{seconds:.1f}{THIN}s"
    return f"{seconds * 1000:.1f}{THIN}ms" if seconds < 0.0995 else f"{seconds * 1000:.0f}{THIN}ms"


def lasting(seconds: float | None) -> str:
    """Format how long ids in memory last; infinite without draws."""
    if seconds is None:
        return NONE
    return "idle" if isinf(seconds) else duration(seconds)


def duration(seconds: float) -> str:
    if isinf(seconds):
        return "for ever"
    if seconds < 10:
        return f"{seconds:.1f}{THIN}s"
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f}{THIN}s"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f}{THIN}min"
    if seconds < 2 * DAY:
        return f"{seconds / HOUR:.0f}{THIN}h"
    return f"{count(round(seconds / DAY))}{THIN}days"


def ago(seconds: float) -> str:
    if isinf(seconds):
        return "never"
    return "just now" if seconds < 1 else f"{duration(seconds)} ago"


def days(value: float | None) -> str:
    if value is None:
        return NONE
    if value > CENTURY:
        return f">{THIN}100{THIN}years"
    if value > 2 * YEAR:
        return f"{value / YEAR:.0f}{THIN}years"
    return f"{value:.1f}{THIN}days" if value < 10 else f"{value:.0f}{THIN}days"


def part(value: int, limit: int) -> str:
    """Format the used share of a limit, in percent."""
    share = 100 * value / max(1, limit)
    if share == 0:
        return f"0{THIN}%"
    return f"<{THIN}0.01{THIN}%" if share < 0.01 else f"{share:.2f}{THIN}%"
