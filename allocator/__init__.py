"""Unique 64-bit ids out of the SQL database that you already run.

PYTEST_DONT_REWRITE: the package holds pytest fixtures, and pytest warns if it was imported before pytest started.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

__distribution__ = "segment-allocator"  # before `errors`, which looks whether this file is still ours

from allocator import errors as errors

if TYPE_CHECKING:
    from allocator.aio import AsyncAllocator as AsyncAllocator
    from allocator.aio import AsyncSequence as AsyncSequence
    from allocator.generators.inspect_id import inspect_id as inspect_id
    from allocator.generators.meteor import Meteor as Meteor
    from allocator.generators.objectid import ObjectId as ObjectId
    from allocator.generators.sequence import Sequence as Sequence
    from allocator.generators.snowflake import Snowflake as Snowflake
    from allocator.generators.worker_numbers import AsyncWorkerLease as AsyncWorkerLease
    from allocator.generators.worker_numbers import WorkerLease as WorkerLease
    from allocator.numbers import Numbers as Numbers
    from allocator.public_ids import PublicIds as PublicIds
    from allocator.schemes.formats.bit_layout import Layout as Layout
    from allocator.schemes.formats.id_inspection import Inspection as Inspection
    from allocator.schemes.formats.id_inspection import Reading as Reading
    from allocator.schemes.gapless_numbers import Number as Number
    from allocator.schemes.meteor import MeteorSettings as MeteorSettings
    from allocator.schemes.shared.argument_checks import JAVASCRIPT_MAX_ID as JAVASCRIPT_MAX_ID
    from allocator.schemes.snowflake import SnowflakeSettings as SnowflakeSettings
    from allocator.schemes.tag import Tag as Tag
    from allocator.sync import Allocator as Allocator

__version__ = "0.1.0"


def _warn_of_a_namesake() -> None:
    """Warn of the unrelated `allocator` of PyPI in this folder: what removes it removes files of ours."""
    try:
        with os.scandir(f"{__path__[0]}/..") as beside:  # importlib.metadata takes longer than all our imports
            found = any(one.name.startswith("allocator-") and one.name.endswith(".dist-info") for one in beside)
    except OSError:  # imported from a zip file
        return
    if found:
        import warnings

        warnings.warn(
            f"an unrelated project named 'allocator' is installed into the same folder as {__distribution__}: "
            f"{__path__[0]}; run: pip uninstall allocator {__distribution__}, then install {__distribution__} again",
            RuntimeWarning,
            stacklevel=3,
        )


_warn_of_a_namesake()

HOMES = {
    "Allocator": "allocator.sync",
    "AsyncAllocator": "allocator.aio",
    "AsyncSequence": "allocator.aio",
    "AsyncWorkerLease": "allocator.generators.worker_numbers",
    "Inspection": "allocator.schemes.formats.id_inspection",
    "JAVASCRIPT_MAX_ID": "allocator.schemes.shared.argument_checks",
    "Layout": "allocator.schemes.formats.bit_layout",
    "Meteor": "allocator.generators.meteor",
    "MeteorSettings": "allocator.schemes.meteor",
    "Number": "allocator.schemes.gapless_numbers",
    "Numbers": "allocator.numbers",
    "ObjectId": "allocator.generators.objectid",
    "PublicIds": "allocator.public_ids",
    "Reading": "allocator.schemes.formats.id_inspection",
    "Sequence": "allocator.generators.sequence",
    "Snowflake": "allocator.generators.snowflake",
    "SnowflakeSettings": "allocator.schemes.snowflake",
    "Tag": "allocator.schemes.tag",
    "WorkerLease": "allocator.generators.worker_numbers",
    "inspect_id": "allocator.generators.inspect_id",
}
"""Imported on first access: meteors need no asyncio, and errors need neither."""

if not TYPE_CHECKING:  # a type checker reads the imports above, and would take every name for one that exists
    __all__ = list(HOMES)

    def __getattr__(name: str) -> object:
        if home := HOMES.get(name):
            value = globals()[name] = getattr(import_module(home), name)
            return value
        if isinstance(vars(errors).get(name), type):  # ImportError: `from … import` hides the text of AttributeError
            raise ImportError(f"{name} is in allocator.errors: from allocator.errors import {name}", name=name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*HOMES, "__version__", "errors"]
