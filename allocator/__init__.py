"""Unique 64-bit ids out of the SQL database that you already run.

PYTEST_DONT_REWRITE: there are fixtures for pytest here, and it would warn where this was imported before it started.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from allocator.errors import (
    AccessDenied,
    AllocatorClosed,
    AllocatorError,
    ClockWentBack,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    FleetGrowing,
    ForkedUnseen,
    InvalidArgument,
    InvalidCount,
    InvalidDatabase,
    InvalidId,
    InvalidSetting,
    InvalidTag,
    LeaseLost,
    MaxValueWentBack,
    NodeIdsExhausted,
    NotCopyable,
    ReentrantCall,
    SchemaDamaged,
    SchemaOutOfDate,
    ServerReplaced,
    ShardMisconfigured,
    TagExists,
    TooManyRequests,
    UnknownTag,
)

if TYPE_CHECKING:
    from allocator.aio import AsyncAllocator, AsyncSequence
    from allocator.inspection import inspect_id
    from allocator.meteor import Meteor
    from allocator.objectid import ObjectId
    from allocator.public import PublicIds
    from allocator.schemes.inspect import Inspection, Reading
    from allocator.schemes.layout import Layout
    from allocator.schemes.limits import JAVASCRIPT_MAX_ID
    from allocator.schemes.meteor import MeteorSettings
    from allocator.schemes.snowflake import SnowflakeSettings
    from allocator.schemes.tag import Tag
    from allocator.sequence import Sequence
    from allocator.snowflake import Snowflake
    from allocator.sync import Allocator

__version__ = "0.1.0"

__all__ = [
    "JAVASCRIPT_MAX_ID",
    "AccessDenied",
    "Allocator",
    "AllocatorClosed",
    "AllocatorError",
    "AsyncAllocator",
    "AsyncSequence",
    "ClockWentBack",
    "DatabaseRefused",
    "DatabaseUnavailable",
    "Exhausted",
    "FleetGrowing",
    "ForkedUnseen",
    "Inspection",
    "InvalidArgument",
    "InvalidCount",
    "InvalidDatabase",
    "InvalidId",
    "InvalidSetting",
    "InvalidTag",
    "Layout",
    "LeaseLost",
    "MaxValueWentBack",
    "Meteor",
    "MeteorSettings",
    "NodeIdsExhausted",
    "NotCopyable",
    "ObjectId",
    "PublicIds",
    "Reading",
    "ReentrantCall",
    "SchemaDamaged",
    "SchemaOutOfDate",
    "Sequence",
    "ServerReplaced",
    "ShardMisconfigured",
    "Snowflake",
    "SnowflakeSettings",
    "Tag",
    "TagExists",
    "TooManyRequests",
    "UnknownTag",
    "inspect_id",
]

HOMES = {
    "allocator.aio": ("AsyncAllocator", "AsyncSequence"),
    "allocator.inspection": ("inspect_id",),
    "allocator.meteor": ("Meteor",),
    "allocator.objectid": ("ObjectId",),
    "allocator.public": ("PublicIds",),
    "allocator.schemes.inspect": ("Inspection", "Reading"),
    "allocator.schemes.layout": ("Layout",),
    "allocator.schemes.limits": ("JAVASCRIPT_MAX_ID",),
    "allocator.schemes.meteor": ("MeteorSettings",),
    "allocator.schemes.snowflake": ("SnowflakeSettings",),
    "allocator.schemes.tag": ("Tag",),
    "allocator.sequence": ("Sequence",),
    "allocator.snowflake": ("Snowflake",),
    "allocator.sync": ("Allocator",),
}
"""Imported when they are asked for: who draws meteors needs no asyncio, and who catches errors needs neither."""


def __getattr__(name: str) -> object:
    for home, names in HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(home), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
