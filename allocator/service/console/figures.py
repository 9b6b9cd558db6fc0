"""What the pages show: plots, and numbers for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, inf, log10

WIDTH, HEIGHT = 600, 100
"""Of a plot: a unit for each second, and for each percent."""
COARSE = 3
"""Samples that a small plot shows as one."""

THIN = "\u202f"
"""A narrow no-break space: a line never breaks within a number."""
DAY = 86_400.0
YEAR = 365.25 * DAY
UNITS = ((2 * YEAR, YEAR, "years"), (2 * DAY, DAY, "days"), (7200, 3600, "h"), (120, 60, "min"), (1, 1, "s"))
"""The least seconds that are shown in a unit, and the seconds of the unit."""


def top_of(values: Sequence[float]) -> float:
    """The upper edge of a plot: the next of 1, 2, 5, 10, 20, 50 and so on."""
    greatest = max(values)
    if greatest <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(greatest))
    return unit * next(step for step in (1, 2, 5, 10, 20) if step * unit >= greatest)


def points_of(times: Sequence[float], values: Sequence[float]) -> list[tuple[int, float]]:
    """The places of values in a plot, from its upper left corner, the newest at the right edge."""
    top = top_of(values)
    pairs = zip(times, values, strict=True)
    return [(round(WIDTH + at - times[-1]), round(HEIGHT * (1 - value / top), 1)) for at, value in pairs]


def curve(times: Sequence[float], values: Sequence[float]) -> str:
    """The path of a curve."""
    return "M" + "L".join(f"{x},{y}" for x, y in points_of(times, values))


def area(times: Sequence[float], values: Sequence[float]) -> str:
    """The path around all that is below the curve."""
    return f"{curve(times, values)}V{HEIGHT}H{points_of(times, values)[0][0]}Z"


def bars(times: Sequence[float], values: Sequence[float]) -> str:
    """A path with a bar for each value above 0."""
    return "".join(f"M{x},{HEIGHT}V{y}" for x, y in points_of(times, values) if y < HEIGHT)


def coarse(values: Sequence[float]) -> list[float]:
    """The means of each few values, for a small plot."""
    whole = list(values)[len(values) % COARSE :]
    return [sum(whole[at : at + COARSE]) / COARSE for at in range(0, len(whole), COARSE)]


def count(number: float | None) -> str:
    return "" if number is None else f"{round(number):,}".replace(",", THIN)


def rate(value: float) -> str:
    """Format ids per second."""
    if value < 10:
        return f"{value:.2g}" if value >= 0.005 else ""
    return count(value)


def duration(seconds: float | None) -> str:
    """Format seconds; nothing if they are unknown or without end."""
    if seconds is None or seconds == inf:
        return ""
    if seconds > 100 * YEAR:
        return f">{THIN}100{THIN}years"
    unit, name = next(((unit, name) for least, unit, name in UNITS if seconds >= least), (0.001, "ms"))
    return f"{seconds / unit:.1f}{THIN}{name}" if seconds < 10 * unit else f"{count(seconds / unit)}{THIN}{name}"
