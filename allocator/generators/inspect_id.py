"""`inspect_id`: `schemes.formats.id_inspection` with the clock."""

from __future__ import annotations

from time import time

from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.formats.id_inspection import Inspection, inspect


def inspect_id(
    value: object, *, scheme: str | None = None, epoch: int | None = None, layout: str | Layout | None = None
) -> Inspection:
    """Inspect an id of any scheme: a number, 24 hex digits, a UUID, a TSID, a ULID, or a UUID or ObjectId object.

    scheme: return only this reading: segment, meteor, snowflake, objectid, objectid-machine, uuid, tsid, ulid.
    epoch: a non-default epoch: in seconds for ids that count seconds, in milliseconds for others.
    layout: return only the reading of a number by this layout: meteor, snowflake, discord, instagram, tsid,
        sonyflake; or a `Layout` with the fields of one of these.

    Raises `InvalidId` if the value is no id, or not of that scheme.
    """
    return inspect(value, time(), scheme, epoch, layout)
