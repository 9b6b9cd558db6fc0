"""Where the fields of an id stand among its bits, for a drawing. Pure."""

from __future__ import annotations

from typing import NamedTuple

from allocator.schemes.formats import FORMATS
from allocator.schemes.layout import Layout
from allocator.schemes.readings import Reading


class Band(NamedTuple):
    """A field of `width` bits, the first of which is bit `left` counted from the sign."""

    name: str
    left: int
    width: int
    value: int | str


def bands(reading: Reading) -> list[Band]:
    """None for a scheme that has no bits to show."""
    form = FORMATS.get(reading.scheme)
    return [] if form is None else bands_of(form.layout, reading)


def bands_of(layout: Layout, reading: Reading) -> list[Band]:
    found, left = [], 0
    for name, width in layout.widths.items():
        found.append(Band(name, left, width, reading.fields.get(name, 0)))
        left += width
    return found
