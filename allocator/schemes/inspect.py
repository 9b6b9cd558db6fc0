"""Taking an id apart: which schemes it may be of, its fields, its time, and what it cannot tell.

A number alone does not say which scheme made it. Each scheme that fits is a `Reading`, the likely ones first; a
reading is unlikely when its time is in the future or one of its fields cannot have the value. `scheme` and `epoch`
decide where the caller knows more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from allocator.errors import InvalidId, InvalidSetting
from allocator.schemes.layout import Layout, moment
from allocator.schemes.limits import MAX_ID, check_whole, shown
from allocator.schemes.meteor import EPOCH as METEOR_EPOCH
from allocator.schemes.meteor import METEOR, RANDOMS
from allocator.schemes.objectid import COUNTER, HEX, PROCESS, parse, seconds_of, time_of
from allocator.schemes.snowflake import EPOCH as SNOWFLAKE_EPOCH
from allocator.schemes.snowflake import SNOWFLAKE

UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}", re.ASCII)
NUMBER = re.compile(r"-?[0-9]{1,30}", re.ASCII)
SCHEMES = ("segment", "meteor", "snowflake", "objectid", "objectid-machine", "uuid")
CHANGED = 1_514_764_800
"""2018-01-01: about when drivers put random bytes in place of machine and process id."""
GREGORIAN = 12_219_292_800
"""Seconds from 1582-10-15, where the time of a UUID begins, to 1970."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An id, taken as one of a scheme. `likely` is False where `why` says what speaks against it."""

    scheme: str
    fields: dict[str, int | str]
    time: datetime | None
    likely: bool
    why: str
    cannot_tell: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """What an id may be: `readings` holds every scheme that fits, the likely ones first."""

    id: str
    readings: tuple[Reading, ...]


def inspect(value: object, now: float, scheme: str | None = None, epoch: int | None = None) -> Inspection:
    """Take an id apart; `now` is seconds since 1970. The epoch is in the scheme's own unit."""
    if scheme is not None and scheme not in SCHEMES:
        raise InvalidSetting(f"scheme must be one of {', '.join(SCHEMES)}, got {shown(scheme, 40)}")
    if epoch is not None:
        check_whole("epoch", epoch, 0, MAX_ID)
    text = (value if isinstance(value, str) else shown(value, form=str)).strip()
    readings = [found for found in read_all(value, text, now, epoch) if scheme is None or found.scheme == scheme]
    if not readings:
        raise InvalidId(f"{ascii(text)[:60]} is no id of the scheme {scheme}")
    readings.sort(key=lambda found: not found.likely)
    return Inspection(text, tuple(readings))


def read_all(value: object, text: str, now: float, epoch: int | None) -> list[Reading]:
    if isinstance(value, bool) or (not isinstance(value, int | str | UUID) and not hasattr(value, "binary")):
        raise InvalidId(f"an id is a number, 24 hex digits or a UUID, got {type(value).__name__}")
    if isinstance(value, int):
        return read_number(value, now, epoch)
    text = text.removeprefix("urn:uuid:").strip("{}")
    if NUMBER.fullmatch(text) and len(text) != 24:
        return read_number(int(text), now, epoch)
    if HEX.fullmatch(text):
        return read_objectid(parse(text), now)
    if UUID_TEXT.fullmatch(text):
        return [read_uuid(UUID(text), now)]
    raise InvalidId(f"an id is a number, 24 hex digits or a UUID, got {len(text)} characters: {ascii(text)[:60]}")


def read_number(number: int, now: float, epoch: int | None) -> list[Reading]:
    if not 1 <= number <= MAX_ID:
        raise InvalidId(f"an id is 1 to {MAX_ID}, got {shown(number)}")
    return [
        timed("meteor", METEOR, number, "second", 1, METEOR_EPOCH if epoch is None else epoch, now),
        timed("snowflake", SNOWFLAKE, number, "timestamp", 1000, SNOWFLAKE_EPOCH if epoch is None else epoch, now),
        Reading(
            "segment",
            {"value": number},
            None,
            number < 1 << 53,
            "any number can be one" if number < 1 << 53 else "few sequences have come so far",
            "its tag, its time, and who got it",
        ),
    ]


def timed(scheme: str, layout: Layout, number: int, field: str, per_second: int, epoch: int, now: float) -> Reading:
    fields = layout.unpack(number)
    at = (epoch + fields[field]) / per_second
    against = ""
    if at > now + AHEAD[scheme]:
        against = f"its time would be in the future, {moment(at)}"
    elif fields.get("random", 0) >= RANDOMS:
        against = f"a random field is never {fields['random']}"
    elif fields[field] == 0:
        against = f"it would be made in the first {'second' if per_second == 1 else 'millisecond'} of the epoch"
    why = against or f"its time would be {moment(at)}"
    return Reading(scheme, dict(fields), moment(at), not against, why, CANNOT_TELL[scheme])


AHEAD = {"meteor": 30 * 86_400.0, "snowflake": 3600.0}
"""Seconds that an id may be ahead of the clock: a meteor's go up with the ids drawn."""

CANNOT_TELL = {
    "meteor": "whether layout and epoch are the default ones; the exact time: the second is that of the registration, "
    "and goes up with the ids drawn",
    "snowflake": "whether layout and epoch are the default ones",
}


def read_objectid(raw: bytes, now: float) -> list[Reading]:
    past = seconds_of(raw) <= now
    then = seconds_of(raw) < CHANGED
    why = f"its time would be {time_of(raw)}, {'which has passed' if past else 'which is in the future'}"
    counter = int.from_bytes(raw[COUNTER], "big")
    new: dict[str, int | str] = {"seconds": seconds_of(raw), "process": raw[PROCESS].hex(), "counter": counter}
    old: dict[str, int | str] = {
        "seconds": seconds_of(raw),
        "machine": raw[4:7].hex(),
        "pid": int.from_bytes(raw[7:9], "big"),
        "counter": counter,
    }
    return [
        Reading("objectid", new, time_of(raw), past, why, "which host and process it was: five random bytes"),
        Reading(
            "objectid-machine",
            old,
            time_of(raw),
            then,
            f"the layout {'of its time, ' if then else ''}before 2018",
            "whether it has this layout",
        ),
    ]


def read_uuid(found: UUID, now: float) -> Reading:
    fields: dict[str, int | str] = {"variant": found.variant, "version": found.version or 0}
    at = uuid_time(found)
    why = f"a UUID of version {found.version}" if found.version else "a UUID of no known version"
    likely = at is None or at <= now
    return Reading("uuid", fields, None if at is None else moment(at), likely, why, "who made it")


def uuid_time(found: UUID) -> float | None:
    """Seconds since 1970, of the versions that hold a time."""
    if found.version == 1:
        return found.time / 1e7 - GREGORIAN
    if found.version == 6:
        ticks = (found.int >> 80) << 12 | (found.int >> 64) & 0xFFF
        return ticks / 1e7 - GREGORIAN
    if found.version == 7:
        return (found.int >> 80) / 1000
    return None
