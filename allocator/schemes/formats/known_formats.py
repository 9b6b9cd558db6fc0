"""The table of known formats with a time field: their bits, tick and epoch.

Ids are positive signed 64-bit numbers. Formats whose time uses the topmost bit have one bit less of it here:
Instagram's ends in 2046, Discord's in 2084, TSID's in 2089.
Sources: the README of baidu/uid-generator and its `DefaultUidGenerator`, sony/sonyflake and its v2, Discord's API
reference, "Sharding & IDs at Instagram", Ahoo-Wang/CosId, twitter-archive/snowflake, f4b6a3/tsid-creator,
getsentry/sentry (`utils/snowflake.py` and `conf/server.py`).
javascript53 is our own: below 2**53, so that JavaScript reads it exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

from allocator.errors import InvalidSetting
from allocator.schemes.formats.bit_layout import TICKS, Format, Layout, layout_from_text
from allocator.schemes.meteor import EPOCH as METEOR_EPOCH
from allocator.schemes.meteor import METEOR
from allocator.schemes.shared.argument_checks import quoted
from allocator.schemes.snowflake import EPOCH as SNOWFLAKE_EPOCH
from allocator.schemes.snowflake import SNOWFLAKE

WORKER = ["worker", "sequence"]
SONYFLAKE = Layout(sign=1, centisecond=39, sequence=8, machine=16)

# Baidu reads the epoch "2016-05-20" in the zone of the machine; this default is midnight in China.
UID_GENERATOR = Format(Layout(sign=1, second=28, worker=22, sequence=13), 1_463_673_600)

FORMATS: Mapping[str, Format] = {
    "meteor": Format(METEOR, METEOR_EPOCH),
    "snowflake": Format(SNOWFLAKE, SNOWFLAKE_EPOCH),
    "twitter": Format(SNOWFLAKE, SNOWFLAKE_EPOCH),
    "discord": Format(Layout(sign=1, timestamp=41, worker=5, process=5, increment=12), 1_420_070_400_000),
    "instagram": Format(Layout(sign=1, timestamp=40, shard=13, sequence=10), 1_314_220_021_721),
    "tsid": Format(Layout(sign=1, timestamp=41, node=10, counter=12), 1_577_836_800_000),
    "baidu": UID_GENERATOR,
    "uid-generator": UID_GENERATOR,
    "sonyflake": Format(SONYFLAKE, 1_409_529_600_000),
    "sonyflake-v2": Format(SONYFLAKE, 1_735_689_600_000),
    "cosid": Format(Layout(sign=1, timestamp=41, machine=10, sequence=12), 1_577_203_200_000),
    "cosid-second": Format(Layout(sign=1, second=31, machine=10, sequence=22), 1_577_203_200),
    # Version 1 with its bits in reverse. The epoch is midnight in UTC, the zone of Sentry's servers.
    "sentry": Format(Layout(sign=11, version=5, second=32, region=12, sequence=4), 1_659_916_800, {"version": 0b10000}),
    "javascript53": Format(Layout(sign=11, centisecond=37, worker=10, sequence=6), 1_735_689_600_000),
}


def format_of(layout: object) -> tuple[str, Format]:
    """The name and format for a name, a name with widths (baidu:1/29/21/13), or a `Layout`.

    A `Layout` must have the fields of a known format, in their order, and gets the epoch of that format; or those that
    `Snowflake` makes.
    """
    if isinstance(layout, Layout):
        for name, known in FORMATS.items():
            if list(known.layout.widths) == list(layout.widths):
                return name, known._replace(layout=layout)
        if is_own(layout):
            return "snowflake", Format(layout, SNOWFLAKE_EPOCH // (1000 if "second" in layout.widths else 1))
    if isinstance(layout, str):
        name, colon, widths = layout.partition(":")
        if known_one := FORMATS.get(name):
            return name, known_one._replace(layout=layout_from_text(widths, known_one.layout)) if colon else known_one
    raise InvalidSetting(
        f"layout must be one of {', '.join(FORMATS)}, or one of them with widths of its fields in bits, as in "
        f"baidu:1/29/21/13, or a Layout with the fields of one of them; got {quoted(layout, 100)}"
    )


def is_own(layout: Layout) -> bool:
    """Whether `Snowflake` makes ids of these fields: only the widths, the tick and the epoch are the caller's."""
    clock, others = list(layout.widths)[1:2], list(layout.widths)[2:]
    return clock in [[name] for name in TICKS] and others in (WORKER, ["datacenter", *WORKER])


def own_format(layout: object, epoch: int | None) -> Format:
    layout = SNOWFLAKE if layout is None else layout
    if not isinstance(layout, Layout) or not is_own(layout):
        raise InvalidSetting(
            f"layout must be a Layout of sign, one of {', '.join(TICKS)}, perhaps datacenter, worker and sequence, in "
            f"this order, got {quoted(layout, 100)}"
        )
    _, form = format_of(layout)
    return form if epoch is None else form._replace(epoch=epoch)
