"""`inspect_id`: the clock for `schemes.inspect`."""

from __future__ import annotations

from time import time

from allocator.schemes.inspect import Inspection, inspect


def inspect_id(value: object, *, scheme: str | None = None, epoch: int | None = None) -> Inspection:
    """Take an id of any scheme apart: a number, 24 hex digits, a UUID, or an object of these.

    scheme: only this reading; one of segment, meteor, snowflake, objectid, objectid-machine, uuid.
    epoch: of the scheme, where it is not the default one: seconds for meteor, milliseconds for snowflake.

    Raises `InvalidId` for what is no id, or not of that scheme.
    """
    return inspect(value, time(), scheme, epoch)
