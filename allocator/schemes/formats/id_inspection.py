"""Inspect an id: the schemes it may be of, its fields and its time.

A number alone does not show which scheme made it. Each scheme that fits is a `Reading`, likely ones first. A reading
is unlikely when its time is in the future, or when a field has a value that the scheme never makes. A caller who knows
more passes `scheme`, `epoch` or `layout`; with a layout, only its reading is returned.

Ids are positive signed 64-bit numbers. Formats of others whose time uses the topmost bit have one bit less of it here:
Instagram's ends in 2046, Discord's in 2084, TSID's in 2089.
Sources: twitter-archive/snowflake, Discord's API reference, "Sharding & IDs at Instagram", f4b6a3/tsid-creator and
sony/sonyflake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from uuid import UUID

from allocator.errors import InvalidId, InvalidSetting
from allocator.schemes.formats.bit_layout import Format, Layout, moment
from allocator.schemes.meteor import RANDOMS, MeteorSettings
from allocator.schemes.objectid import COUNTER, HEX, PROCESS, parse, seconds_of, time_of
from allocator.schemes.shared.argument_checks import MAX_ID, check_whole, quoted
from allocator.schemes.snowflake import SnowflakeSettings

UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}", re.ASCII)
NUMBER = re.compile(r"-?[0-9]{1,30}", re.ASCII)
TSID = re.compile(r"[0-7OIL][0-9A-TV-Z]{12}", re.ASCII | re.IGNORECASE)
ULID = re.compile(r"[0-7OIL][0-9A-TV-Z]{25}", re.ASCII | re.IGNORECASE)
"""Crockford's digits; O counts as 0, I and L as 1. The first digit keeps a TSID below 2**63, a ULID below 2**128."""
BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
MISREAD = str.maketrans("OIL", "011")
SCHEMES = ("segment", "meteor", "snowflake", "objectid", "objectid-machine", "uuid", "tsid", "ulid")
EXPECTED = "an id is a number, 24 hex digits, a UUID, a TSID or a ULID"
RANDOM_SINCE = 1_514_764_800
"""2018-01-01: about when MongoDB drivers replaced machine and process id by random bytes."""
GREGORIAN = 12_219_292_800
"""Seconds from 1582-10-15, the epoch of UUIDs, to 1970."""
FORMATS: Mapping[str, Format] = {
    "meteor": MeteorSettings().form,
    "snowflake": SnowflakeSettings().form,
    "discord": Format(Layout(sign=1, timestamp=41, worker=5, process=5, increment=12), 1_420_070_400_000),
    "instagram": Format(Layout(sign=1, timestamp=40, shard=13, sequence=10), 1_314_220_021_721),
    "tsid": Format(Layout(sign=1, timestamp=41, node=10, counter=12), 1_577_836_800_000),
    "sonyflake": Format(Layout(sign=1, centisecond=39, sequence=8, machine=16), 1_409_529_600_000),
}
"""Formats with a time: their bits, tick and epoch."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An id read as one of a scheme; `why` is the reason why it is `likely` or not."""

    scheme: str
    fields: dict[str, int | str]
    time: datetime | None
    likely: bool
    why: str
    cannot_tell: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """The possible readings of an id, likely ones first."""

    id: str
    readings: tuple[Reading, ...]


def inspection_to_json(found: Inspection) -> dict[str, object]:
    return {"id": found.id, "readings": [reading_to_json(one) for one in found.readings]}


def reading_to_json(reading: Reading) -> dict[str, object]:
    fields = {name: str(value) for name, value in reading.fields.items()}
    return asdict(reading) | {"fields": fields, "time": reading.time and reading.time.isoformat()}


def inspect(
    value: object, now: float, scheme: str | None = None, epoch: int | None = None, layout: object = None
) -> Inspection:
    """Inspect an id. `now` is in seconds since 1970, `epoch` in the unit of the scheme."""
    if scheme is not None and scheme not in SCHEMES:
        raise InvalidSetting(f"scheme must be one of {', '.join(SCHEMES)}, got {quoted(scheme, 40)}")
    if epoch is not None:
        check_whole("epoch", epoch, 0, MAX_ID)
    text = (value if isinstance(value, str) else quoted(value, form=str)).strip()
    if layout is None:
        readings = read_all(value, text, now, epoch)
    else:
        name, form = format_of(layout)
        if scheme not in (None, name):
            raise InvalidSetting(f"layout {layout} belongs to scheme {name}, not {scheme}; pass only one of them")
        readings = [timed(name, form, number, epoch, now) for number in numbers_of(value, text)]
        scheme = name
    readings = [reading for reading in readings if scheme is None or reading.scheme == scheme]
    if not readings:
        raise InvalidId(f"{ascii(text)[:60]} is not an id of the scheme {scheme}")
    readings.sort(key=lambda reading: not reading.likely)
    return Inspection(text, tuple(readings))


def format_of(layout: object) -> tuple[str, Format]:
    """The name and format for a name or a `Layout`.

    A `Layout` must have the fields of a known format, in their order, and gets the epoch of that format.
    """
    if isinstance(layout, Layout):
        for name, known in FORMATS.items():
            if list(known.layout.widths) == list(layout.widths):
                return name, known._replace(layout=layout)
    if isinstance(layout, str) and layout in FORMATS:
        return layout, FORMATS[layout]
    raise InvalidSetting(
        f"layout must be one of {', '.join(FORMATS)}, or a Layout with the fields of one of them; got "
        f"{quoted(layout, 100)}"
    )


def read_all(value: object, text: str, now: float, epoch: int | None) -> list[Reading]:
    if isinstance(value, bool) or (not isinstance(value, int | str | UUID) and not hasattr(value, "binary")):
        raise InvalidId(f"{EXPECTED}, got {type(value).__name__}")
    if isinstance(value, int):
        return read_number(value, now, epoch)
    text = text.removeprefix("urn:uuid:").strip("{}")
    readings = read_number(int(text), now, epoch) if is_number(text) else []
    if TSID.fullmatch(text):
        readings.append(read_tsid(from_base32(text), now, epoch))
    if ULID.fullmatch(text):
        readings.append(read_ulid(from_base32(text), now))
    if HEX.fullmatch(text):
        readings += read_objectid(parse(text), now)
    if UUID_TEXT.fullmatch(text):
        readings.append(read_uuid(UUID(text), now))
    if not readings:
        raise InvalidId(f"{EXPECTED}, got {len(text)} characters: {ascii(text)[:60]}")
    return readings


def numbers_of(value: object, text: str) -> list[int]:
    """The numbers that a value may mean: 13 digits are a number, and possibly a TSID."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [check_id(value)]
    numbers = [check_id(int(text))] if is_number(text) else []
    return [*numbers, from_base32(text)] if TSID.fullmatch(text) else numbers


def is_number(text: str) -> bool:
    """Whether a text is a decimal id. 24 or 26 digits are an ObjectId or a ULID: no 64-bit number is as long."""
    return bool(NUMBER.fullmatch(text)) and len(text) not in (24, 26)


def from_base32(text: str) -> int:
    number = 0
    for digit in text.upper().translate(MISREAD):
        number = number << 5 | BASE32.index(digit)
    return number


def check_id(number: int) -> int:
    if not 1 <= number <= MAX_ID:
        raise InvalidId(f"an id is 1 to {MAX_ID}, got {quoted(number)}")
    return number


def read_number(number: int, now: float, epoch: int | None) -> list[Reading]:
    check_id(number)
    likely = number < 1 << 53
    why = "every number can be a segment id" if likely else "few sequences reach numbers of this size"
    return [
        *(timed(name, FORMATS[name], number, epoch, now) for name in ("meteor", "snowflake")),
        Reading("segment", {"value": number}, None, likely, why, "its tag, its time, and the process that drew it"),
    ]


def read_tsid(number: int, now: float, epoch: int | None) -> Reading:
    reading = timed("tsid", FORMATS["tsid"], number, epoch, now)
    return replace(reading, fields={"number": str(number), **reading.fields})


def timed(name: str, form: Format, number: int, epoch: int | None, now: float) -> Reading:
    if epoch is not None:
        form = form._replace(epoch=epoch)
    fields = form.layout.unpack(number)
    ticks = fields[form.clock]
    at = form.time(ticks)
    time, against = moment(at), ""
    if at > now + AHEAD.get(name, 3600.0):
        against = f"its time would be {time}, in the future"
    elif name == "meteor" and fields["random"] >= RANDOMS:
        against = f"the random field of a meteor is never {fields['random']}"
    elif ticks == 0:
        against = f"its time would be {time}, the first of the epoch"
    why = against or f"its time would be {time}"
    return Reading(name, dict(fields), time, not against, why, CANNOT_TELL.get(name, USUAL))


AHEAD = {"meteor": 30 * 86_400.0}
"""Seconds that an id may be ahead of the clock: fast drawing moves meteors ahead. One hour for other schemes."""

USUAL = "whether layout and epoch are the default ones"
CANNOT_TELL = {
    "meteor": f"{USUAL}; the exact time, since the second starts at registration and advances with the ids drawn"
}


def past_or_future(at: float, now: float) -> str:
    return f"its time would be {moment(at)}, {'in the past' if at <= now else 'in the future'}"


def read_ulid(number: int, now: float) -> Reading:
    at = (number >> 80) / 1000
    fields: dict[str, int | str] = {"timestamp": number >> 80, "random": f"{number & (1 << 80) - 1:020x}"}
    return Reading("ulid", fields, moment(at), at <= now, past_or_future(at, now), "its process")


def read_objectid(raw: bytes, now: float) -> list[Reading]:
    seconds, at = seconds_of(raw), time_of(raw)
    begin: dict[str, int | str] = {"seconds": seconds}
    counter: dict[str, int | str] = {"counter": int.from_bytes(raw[COUNTER], "big")}
    new = {**begin, "process": raw[PROCESS].hex(), **counter}
    old = {**begin, "machine": raw[4:7].hex(), "pid": int.from_bytes(raw[7:9], "big"), **counter}
    is_old = seconds < RANDOM_SINCE
    why_old = "the layout of ObjectIds before 2018" + ("" if is_old else ", and its time is later")
    why_new, unknown = past_or_future(seconds, now), "its host and process, since five bytes are random"
    return [
        Reading("objectid", new, at, seconds <= now, why_new, unknown),
        Reading("objectid-machine", old, at, is_old, why_old, "whether its layout is this one"),
    ]


def read_uuid(found: UUID, now: float) -> Reading:
    fields: dict[str, int | str] = {"variant": found.variant, "version": found.version or 0}
    at = uuid_time(found)
    why = f"a UUID of version {found.version}" if found.version else "a UUID of no known version"
    likely = at is None or at <= now
    return Reading("uuid", fields, None if at is None else moment(at), likely, why, "its process")


def uuid_time(found: UUID) -> float | None:
    """The time in a UUID of version 1 or 7, in seconds since 1970; None in others."""
    if found.version == 1:
        return found.time / 1e7 - GREGORIAN
    if found.version == 7:
        return (found.int >> 80) / 1000
    return None
