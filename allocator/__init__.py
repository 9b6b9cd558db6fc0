"""Unique 64-bit ids out of the SQL database that you already run."""

from allocator.aio import AsyncAllocator, AsyncSequence
from allocator.errors import (
    AllocatorClosed,
    AllocatorError,
    ClockWentBack,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
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
    TagExists,
    UnknownTag,
)
from allocator.schemes.limits import JAVASCRIPT_MAX_ID
from allocator.schemes.tag import Tag
from allocator.sync import Allocator, Sequence

__version__ = "0.1.0"

__all__ = [
    "JAVASCRIPT_MAX_ID",
    "Allocator",
    "AllocatorClosed",
    "AllocatorError",
    "AsyncAllocator",
    "AsyncSequence",
    "ClockWentBack",
    "DatabaseRefused",
    "DatabaseUnavailable",
    "Exhausted",
    "InvalidArgument",
    "InvalidCount",
    "InvalidDatabase",
    "InvalidId",
    "InvalidSetting",
    "InvalidTag",
    "LeaseLost",
    "MaxValueWentBack",
    "NodeIdsExhausted",
    "NotCopyable",
    "SchemaDamaged",
    "SchemaOutOfDate",
    "Sequence",
    "Tag",
    "TagExists",
    "UnknownTag",
]
