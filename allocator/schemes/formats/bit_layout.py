"""Bit layouts: named fields with widths, from which masks, shifts and limits are derived; and formats with a clock.

    Layout(sign=1, second=29, node=20, sequence=11, random=3)

     63  62                            34                  14          3   0
    +---+-----------------------------+--------------------+-----------+---+
    | 0 |           second            |        node        | sequence  |rnd|
    +---+-----------------------------+--------------------+-----------+---+

The first field is the sign: one bit, always 0, so that an id is a positive signed 64-bit integer. With eleven bits of
sign ids are below 2**53, and JavaScript reads them exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from operator import sub
from types import MappingProxyType
from typing import NamedTuple

from allocator.errors import Exhausted, InvalidId, InvalidSetting
from allocator.schemes.shared.argument_checks import check_whole, quoted

BITS = 64
TICKS = {"second": 1000, "centisecond": 10, "timestamp": 1}
"""Milliseconds in one tick of each time field."""
MAX_EPOCH = 253_402_300_799
"""9999-12-31T23:59:59Z, the last second of `datetime`."""


class Layout:
    """Named fields, most significant first, that add up to 64 bits. Immutable; equal when names and widths are."""

    __slots__ = ("_limits", "_shifts", "widths")

    widths: Mapping[str, int]

    def __init__(self, **widths: int) -> None:
        for name, width in widths.items():
            check_whole(f"the width of {name}", width, 1, BITS - 1)
        if sum(widths.values()) != BITS:
            added = " + ".join(map(str, widths.values())) or "0"
            raise InvalidSetting(f"the widths of a layout must add up to {BITS}, got {added} = {sum(widths.values())}")
        if next(iter(widths)) != "sign":
            raise InvalidSetting("a layout must begin with sign=1, or more bits of it, so that ids are positive")
        self.widths = MappingProxyType(widths)
        self._limits = {name: (1 << width) - 1 for name, width in widths.items()}
        below = accumulate(widths.values(), sub, initial=BITS)
        self._shifts = dict(zip(widths, islice(below, 1, None), strict=True))

    def limit(self, field: str) -> int:
        """The greatest value of a field."""
        return self._limits[field] if field != "sign" else 0

    def shift(self, field: str) -> int:
        """The number of bits below a field."""
        return self._shifts[field]

    def pack(self, **values: int) -> int:
        """The id with these field values, the others 0. Raises `InvalidSetting` for a value that does not fit."""
        packed = 0
        for name, value in values.items():
            if name not in self.widths:
                raise InvalidSetting(f"the layout has no field {name!r}, only {', '.join(self.widths)}")
            packed |= check_whole(name, value, 0, self.limit(name)) << self._shifts[name]
        return packed

    def unpack(self, number: int) -> dict[str, int]:
        """The values of all fields but the sign."""
        check_whole("an id", number, 0, (1 << (BITS - self.widths["sign"])) - 1, InvalidId)
        return {name: (number >> shift) & self._limits[name] for name, shift in self._shifts.items() if name != "sign"}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and list(self.widths.items()) == list(other.widths.items())

    def __hash__(self) -> int:
        return hash(tuple(self.widths.items()))

    def __str__(self) -> str:
        """The widths: 1/29/20/11/3."""
        return "/".join(map(str, self.widths.values()))

    def __repr__(self) -> str:
        return f"Layout({', '.join(f'{name}={width}' for name, width in self.widths.items())})"


class Format(NamedTuple):
    """A layout with a time field, and its epoch: in seconds where the field is `second`, otherwise in milliseconds."""

    layout: Layout
    epoch: int

    @property
    def clock(self) -> str:
        """The name of the time field."""
        return next(name for name in self.layout.widths if name in TICKS)

    @property
    def tick(self) -> int:
        """Milliseconds."""
        return TICKS[self.clock]

    @property
    def first_tick(self) -> int:
        """The epoch, in ticks since 1970."""
        return self.epoch if self.clock == "second" else self.epoch // self.tick

    def time(self, ticks: int) -> float:
        """Seconds since 1970."""
        return (self.epoch * (1000 if self.clock == "second" else 1) + ticks * self.tick) / 1000

    def ticks(self, now: int) -> int:
        """The value of the time field `now`, in ticks since 1970. Raises `InvalidSetting` before the epoch, and
        `Exhausted` after the last value."""
        ticks, last = now - self.first_tick, self.layout.limit(self.clock)
        if ticks < 0:
            raise InvalidSetting(
                f"the epoch, {moment(self.time(0))}, must not be in the future; the clock says "
                f"{moment(self.time(ticks))}"
            )
        if ticks > last:
            raise Exhausted(
                f"the field {self.clock} of layout {self.layout} ended at {moment(self.time(last))}; choose a later "
                "epoch or more bits, for a new column: beside ids of the old format, some would come again"
            )
        return ticks

    def first_id_at(self, at: datetime) -> int:
        """The least id with the tick of a time, 0 before the epoch; a time without a zone is UTC."""
        if not isinstance(at, datetime):
            raise InvalidSetting(f"the time must be a datetime, got {type(at).__name__}")
        since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - moment(0)
        ticks = max(0, since // timedelta(milliseconds=self.tick) - self.first_tick)
        return self.layout.pack(**{self.clock: ticks})


def check_layout(layout: object, like: Layout) -> Layout:
    """Check that a layout has the fields of `like`, in the same order; the widths may differ."""
    if not isinstance(layout, Layout) or list(layout.widths) != list(like.widths):
        fields = ", ".join(f"{name}=…" for name in like.widths)
        raise InvalidSetting(f"layout must be a Layout of {fields}, in this order, got {quoted(layout, 100)}")
    return layout


def moment(seconds: float) -> datetime:
    """A time in UTC, exact to the millisecond, and at most the end of the year 9999."""
    whole = round(min(seconds, MAX_EPOCH) * 1000)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=whole)
