"""Unique 64-bit ids out of the SQL database that you already run.

PYTEST_DONT_REWRITE: the package holds pytest fixtures, and pytest warns if it was imported before pytest started.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from allocator import errors as errors

if TYPE_CHECKING:
    from allocator.aio import AsyncAllocator, AsyncSequence
    from allocator.generators.inspect_id import inspect_id
    from allocator.generators.meteor import Meteor
    from allocator.generators.objectid import ObjectId
    from allocator.generators.sequence import Sequence
    from allocator.generators.snowflake import Snowflake
    from allocator.generators.worker_numbers import AsyncWorkerLease, WorkerLease
    from allocator.numbers import Numbers
    from allocator.public_ids import PublicIds
    from allocator.schemes.formats.bit_layout import Layout
    from allocator.schemes.formats.id_inspection import Inspection, Reading
    from allocator.schemes.gapless_numbers import Number
    from allocator.schemes.meteor import MeteorSettings
    from allocator.schemes.shared.argument_checks import JAVASCRIPT_MAX_ID
    from allocator.schemes.snowflake import SnowflakeSettings
    from allocator.schemes.tag import Tag
    from allocator.sync import Allocator

__version__ = "0.1.0"

__all__ = [
    "JAVASCRIPT_MAX_ID",
    "Allocator",
    "AsyncAllocator",
    "AsyncSequence",
    "AsyncWorkerLease",
    "Inspection",
    "Layout",
    "Meteor",
    "MeteorSettings",
    "Number",
    "Numbers",
    "ObjectId",
    "PublicIds",
    "Reading",
    "Sequence",
    "Snowflake",
    "SnowflakeSettings",
    "Tag",
    "WorkerLease",
    "inspect_id",
]

HOMES = {
    "allocator.aio": ("AsyncAllocator", "AsyncSequence"),
    "allocator.generators.inspect_id": ("inspect_id",),
    "allocator.generators.meteor": ("Meteor",),
    "allocator.generators.objectid": ("ObjectId",),
    "allocator.numbers": ("Numbers",),
    "allocator.public_ids": ("PublicIds",),
    "allocator.schemes.formats.id_inspection": ("Inspection", "Reading"),
    "allocator.schemes.formats.bit_layout": ("Layout",),
    "allocator.schemes.shared.argument_checks": ("JAVASCRIPT_MAX_ID",),
    "allocator.schemes.meteor": ("MeteorSettings",),
    "allocator.schemes.gapless_numbers": ("Number",),
    "allocator.schemes.snowflake": ("SnowflakeSettings",),
    "allocator.schemes.tag": ("Tag",),
    "allocator.generators.sequence": ("Sequence",),
    "allocator.generators.snowflake": ("Snowflake",),
    "allocator.generators.worker_numbers": ("AsyncWorkerLease", "WorkerLease"),
    "allocator.sync": ("Allocator",),
}
"""Imported on first access: meteors need no asyncio, and errors need neither."""


if not TYPE_CHECKING:  # a type checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        for home, names in HOMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(home), name)
                return value
        if isinstance(vars(errors).get(name), type):  # ImportError: `from … import` hides the text of AttributeError
            raise ImportError(f"{name} is in allocator.errors: from allocator.errors import {name}", name=name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__", "errors"]
