"""The table of known formats with a time field: their bits, tick and epoch.

Ids are read as positive signed 64-bit numbers. Formats whose time uses the topmost bit have one bit less of it here:
Instagram's ends in 2046, Discord's in 2084, TSID's in 2089.
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
"""The tick of each time field, in milliseconds and in words."""


class Format(NamedTuple):
    """A layout whose first field after the sign is the time, and its epoch.

    The epoch is in seconds where the field is `second`, and in milliseconds otherwise.
    """

    layout: Layout
    epoch: int

    @property
    def clock(self) -> str:
        """The name of the time field."""
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
    # Baidu reads the epoch "2016-05-20" in the zone of the machine; this default is midnight in China.
    "baidu": Format(Layout(sign=1, second=28, worker=22, sequence=13), 1_463_673_600),
    "sonyflake": Format(SONYFLAKE, 1_409_529_600_000),
    "sonyflake-v2": Format(SONYFLAKE, 1_735_689_600_000),
    "cosid": Format(Layout(sign=1, timestamp=41, machine=10, sequence=12), 1_577_203_200_000),
    "cosid-second": Format(Layout(sign=1, second=31, machine=10, sequence=22), 1_577_203_200),
}


def format_of(layout: object) -> tuple[str, Format]:
    """The name and format for a name, a name with widths (meteor:1/31/18/11/3), or a `Layout`.

    A `Layout` must have the fields of a known format, in their order; it gets the epoch of that format.
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
        f"layout must be one of {', '.join(FORMATS)}, or one of them with widths of its fields in bits, as in "
        f"meteor:1/31/18/11/3, or a Layout with the fields of one of them; got {quoted(layout, 100)}"
    )
