"""Everything that this package raises on purpose.

    AllocatorError                  never raised itself
    ├── InvalidArgument             also a ValueError
    │   ├── InvalidTag
    │   ├── InvalidCount
    │   ├── InvalidSetting
    │   ├── InvalidDatabase         the URL or engine cannot be used as it stands
    │   └── InvalidId
    ├── UnknownTag
    ├── TagExists
    ├── Exhausted                   the last id of a tag, or of a field of bits, was given out
    ├── NodeIdsExhausted            no node or worker number is left
    ├── ClockWentBack
    ├── ShardMisconfigured          shards of a fleet contradict each other, or one itself
    ├── LeaseLost                   another process has our worker number now
    ├── MaxValueWentBack            the database forgot ids: the tag is stopped
    ├── ServerReplaced              another server, which may have forgotten ids: the tag waits to be repaired
    ├── DatabaseUnavailable         try again later, it is safe
    │   ├── FleetGrowing            a moment, while more shards are added
    │   └── TooManyRequests         a token's rate is used up, the message says for how long
    ├── AccessDenied                the service wants another token
    ├── DatabaseRefused             wrong user, password, name or rights
    ├── SchemaOutOfDate             the tables are missing, behind or ahead
    ├── SchemaDamaged               the tables were altered by hand
    ├── ForkedUnseen                C code forked this process with ids in memory, and no hook of Python's ran
    ├── ReentrantCall               from a signal handler or destructor, in the middle of a call for the same ids
    ├── AllocatorClosed
    └── NotCopyable                 also a TypeError

The errors of drivers are translated in `allocator.database.driver_errors` and nowhere else; the driver's
own error is the `__cause__`.
"""

from __future__ import annotations


class AllocatorError(Exception):
    """The root of the tree; catch it to catch all, it is never raised itself."""

    def again(self) -> AllocatorError:
        """The same refusal as a new object, so that threads do not share one traceback."""
        fresh = type(self)(*self.args)
        fresh.__dict__.update(self.__dict__)
        fresh.__cause__ = self.__cause__
        return fresh


class InvalidArgument(AllocatorError, ValueError):
    """An argument was refused before anything was done; nothing is lost."""


class InvalidTag(InvalidArgument):
    """A tag is 1 to 64 of the characters A-Z a-z 0-9 _ . : - and begins with a letter or digit."""


class InvalidCount(InvalidArgument):
    """A count is a whole number within the bounds that the message names."""


class InvalidSetting(InvalidArgument):
    """A step, limit, duration or starting value is out of its bounds."""


class InvalidDatabase(InvalidArgument):
    """The database URL or engine cannot be used as it stands."""


class InvalidId(InvalidArgument):
    """A number or text that is no id of the schemes, or of the one that was named."""


class UnknownTag(AllocatorError):
    """The tag does not exist, and this allocator does not create tags by itself."""


class TagExists(AllocatorError):
    """The tag that was to be created is there already."""


class Exhausted(AllocatorError):
    """Every id up to the limit of the tag, or to the end of a field of bits, has been given out."""


class NodeIdsExhausted(AllocatorError):
    """No node or worker number is left; the message says who holds them."""


class ClockWentBack(AllocatorError):
    """The clock went back, and this generator has nothing but the clock to keep its ids apart."""


class LeaseLost(AllocatorError):
    """Another process has leased our worker number since; a new one is needed."""


class ShardMisconfigured(AllocatorError):
    """A shard, or several together, would give ids that are not their own; the message says which and what to do."""


class MaxValueWentBack(AllocatorError):
    """The database holds a lower value than it has already given out; the tag is stopped."""


class ServerReplaced(AllocatorError):
    """The database moved to another server, and the tag refuses to skip ids by itself, or has too few left."""


class DatabaseUnavailable(AllocatorError):
    """The database did not answer in time; the call may be tried again, what it had claimed is burnt."""


class FleetGrowing(DatabaseUnavailable):
    """No id can be had while the fleet turns to its new shards, which takes a moment unless it was interrupted."""


class TooManyRequests(DatabaseUnavailable):
    """The rate that the service allows a token is used up for so many `seconds`; nothing was drawn."""

    def __init__(self, message: str, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class AccessDenied(AllocatorError):
    """The service does not know the token, or it is not good for this; nothing was drawn."""


class DatabaseRefused(AllocatorError):
    """The database answered, and refused: wrong user, password, database name or rights."""


class SchemaOutOfDate(AllocatorError):
    """The tables are missing, older or newer than this version needs."""


class SchemaDamaged(AllocatorError):
    """The tables exist but no longer keep what they promise, as after a change by hand."""


class ForkedUnseen(AllocatorError):
    """C code forked this process with ids in memory and ran no hook of Python's: some may have been given out twice."""


class ReentrantCall(AllocatorError):
    """A signal handler or destructor interrupted a call for the same ids: it would wait for itself. Nothing is lost."""


class AllocatorClosed(AllocatorError):
    """The allocator was closed; make a new one."""

    def __init__(self, message: str = "the allocator is closed; make a new one") -> None:
        super().__init__(message)


class NotCopyable(AllocatorError, TypeError):
    """Two copies of one allocator would give out the same ids, so it is neither copied nor pickled."""


class Uncopyable:
    """Refuses `copy.copy`, `copy.deepcopy` and `pickle` for whatever holds ids."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        raise NotCopyable(
            f"{type(self).__name__} holds ids that must not exist twice: make a new one in the other process"
        )
