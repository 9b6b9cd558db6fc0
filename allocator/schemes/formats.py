"""Known formats of ids with a time in them: which bits, counted in what, and from when. The only table of these.

An id is read as a positive signed number of 64 bits, so a format that counts its time in the topmost bit too has one
bit less of it here: that of Instagram until 2046, those of Discord and TSID until 2084 and 2089.
Sources: the README of baidu/uid-generator and its `DefaultUidGenerator`, sony/sonyflake and its v2, Discord's API
reference, "Sharding & IDs at Instagram", Ahoo-Wang/CosId, twitter-archive/snowflake, f4b6a3/tsid-creator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from allocator.errors import InvalidSetting
from allocator.schemes.checks import quoted
from allocator.schemes.layout import Layout, layout_from_text
from allocator.schemes.meteor import EPOCH as METEOR_EPOCH
from allocator.schemes.meteor import METEOR
from allocator.schemes.snowflake import EPOCH as SNOWFLAKE_EPOCH
from allocator.schemes.snowflake import SNOWFLAKE

TICKS = {"second": (1000, "second"), "centisecond": (10, "hundredth of a second"), "timestamp": (1, "millisecond")}
"""What each field of time counts: in milliseconds, and in words."""


class Format(NamedTuple):
    """A layout, whose first field is its time, and the epoch: in seconds where it counts these, else milliseconds."""

    layout: Layout
    epoch: int

    @property
    def clock(self) -> str:
        """The field that holds the time."""
        return list(self.layout.widths)[1]

    @property
    def tick_name(self) -> str:
        return TICKS[self.clock][1]

    def time(self, ticks: int) -> float:
        """Seconds since 1970."""
        milliseconds, _ = TICKS[self.clock]
        return (self.epoch * (1000 if self.clock == "second" else 1) + ticks * milliseconds) / 1000


SONYFLAKE = Layout(sign=1, centisecond=39, sequence=8, machine=16)

FORMATS: Mapping[str, Format] = {
    "meteor": Format(METEOR, METEOR_EPOCH),
    "snowflake": Format(SNOWFLAKE, SNOWFLAKE_EPOCH),
    "twitter": Format(SNOWFLAKE, SNOWFLAKE_EPOCH),
    "discord": Format(Layout(sign=1, timestamp=41, worker=5, process=5, increment=12), 1_420_070_400_000),
    "instagram": Format(Layout(sign=1, timestamp=40, shard=13, sequence=10), 1_314_220_021_721),
    "tsid": Format(Layout(sign=1, timestamp=41, node=10, counter=12), 1_577_836_800_000),
    # Its epoch is midnight in China: it reads "2016-05-20" by the zone of the machine, and has this number as default.
    "baidu": Format(Layout(sign=1, second=28, worker=22, sequence=13), 1_463_673_600),
    "sonyflake": Format(SONYFLAKE, 1_409_529_600_000),
    "sonyflake-v2": Format(SONYFLAKE, 1_735_689_600_000),
    "cosid": Format(Layout(sign=1, timestamp=41, machine=10, sequence=12), 1_577_203_200_000),
    "cosid-second": Format(Layout(sign=1, second=31, machine=10, sequence=22), 1_577_203_200),
}


def format_of(layout: object) -> tuple[str, Format]:
    """The format and its name: of a name, of a name with other widths (meteor:1/31/18/11/3), or of a `Layout`.

    A `Layout` has the fields of a known format, in their order and of whatever widths, and is read with its epoch.
    """
    if isinstance(layout, Layout):
        for name, known in FORMATS.items():
            if list(known.layout.widths) == list(layout.widths):
                return name, known._replace(layout=layout)
    if isinstance(layout, str):
        name, colon, widths = layout.partition(":")
        if known_one := FORMATS.get(name):
            return name, known_one._replace(layout=layout_from_text(widths, known_one.layout)) if colon else known_one
    raise InvalidSetting(
        f"layout must be one of {', '.join(FORMATS)}; such a name and widths, as in meteor:1/31/18/11/3; or a Layout "
        f"with the fields of one of these; got {quoted(layout, 100)}"
    )
