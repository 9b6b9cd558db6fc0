"""Unique 64-bit ids out of the SQL database that you already run."""

from allocator.aio import AsyncAllocator, AsyncSequence
from allocator.errors import (
    AccessDenied,
    AllocatorClosed,
    AllocatorError,
    ClockWentBack,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    FleetGrowing,
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
    SchemaDamaged,
    SchemaOutOfDate,
    ShardMisconfigured,
    TagExists,
    TooManyRequests,
    UnknownTag,
)
from allocator.inspection import inspect_id
from allocator.meteor import Meteor
from allocator.objectid import ObjectId
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
    "Reading",
    "SchemaDamaged",
    "SchemaOutOfDate",
    "Sequence",
    "ShardMisconfigured",
    "Snowflake",
    "SnowflakeSettings",
    "Tag",
    "TagExists",
    "TooManyRequests",
    "UnknownTag",
    "inspect_id",
]
