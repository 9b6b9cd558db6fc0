"""Every error that this package raises on purpose: `from allocator.errors import DatabaseUnavailable`.

    AllocatorError                  the root, never raised itself
    ├── InvalidArgument             also a ValueError
    │   ├── InvalidTag
    │   ├── InvalidCount
    │   ├── InvalidSetting
    │   ├── InvalidDatabase         the URL or engine cannot be used
    │   └── InvalidId
    ├── UnknownTag
    ├── TagExists
    ├── Exhausted                   a tag, or a field of a bit layout, has no id left
    ├── NodeIdsExhausted            no node or worker number is free
    ├── ClockWentBack
    ├── ShardMisconfigured          the rows of one or more shards contradict each other
    ├── LeaseLost                   another process leased this worker number
    ├── MaxValueWentBack            the database lost ids it had issued: the tag is stopped
    ├── ServerReplaced              a server that may have lost ids answers: repair the tag
    ├── DatabaseUnavailable         retry later; a retry never repeats an id
    │   ├── FleetGrowing            shards are being added, which takes a moment
    │   └── TooManyRequests         nodes and leases of a token, or a proxy: retry later
    ├── NumberConflict              run the whole transaction again
    │   └── NumberBusy              another transaction holds the numbers of the scope
    ├── AccessDenied                the token is unknown, or lacks the right
    ├── DatabaseRefused             until somebody changes user, rights, URL, TLS or a setting
    ├── SchemaOutOfDate             the tables are missing, or of an older or newer version
    ├── SchemaDamaged               the tables were changed by hand
    ├── ForkedUnseen                C code forked a process that held ids, without Python's fork hooks
    ├── ReentrantCall               a signal handler or destructor interrupted a call for the same ids
    ├── AllocatorClosed
    └── NotCopyable                 also a TypeError

`allocator.database.driver_errors` alone says what the errors of drivers mean; the driver's error is the `__cause__`.
"""

from __future__ import annotations


class AllocatorError(Exception):
    """The base class of all errors; never raised itself."""

    def again(self) -> AllocatorError:
        """A copy of this error, so that threads do not share one traceback."""
        fresh = type(self)(*self.args)
        fresh.__dict__.update(self.__dict__)
        fresh.__cause__ = self.__cause__
        return fresh


class InvalidArgument(AllocatorError, ValueError):
    """An argument is invalid; nothing was done."""


class InvalidTag(InvalidArgument):
    """A tag is not 1 to 64 of the characters A-Z a-z 0-9 _ . : - with a letter or digit first."""


class InvalidCount(InvalidArgument):
    """A count is not a whole number within the bounds that the message names."""


class InvalidSetting(InvalidArgument):
    """A step, limit, duration or other setting is invalid."""


class InvalidDatabase(InvalidArgument):
    """The database URL or engine cannot be used."""


class InvalidId(InvalidArgument):
    """A number or text is not an id of any scheme, or not of the named one."""


class UnknownTag(AllocatorError):
    """The tag does not exist, and this allocator does not create tags by itself."""


class TagExists(AllocatorError):
    """The tag to create exists already."""


class Exhausted(AllocatorError):
    """A tag has reached its limit, or a field of a bit layout its end."""


class NodeIdsExhausted(AllocatorError):
    """No node or worker number is free; the message names the holders of workers."""


class ClockWentBack(AllocatorError):
    """The clock went back or stands still, and only the clock keeps this generator's ids unique."""


class LeaseLost(AllocatorError):
    """Another process leased our worker number; a new one is needed."""


class ShardMisconfigured(AllocatorError):
    """One or more shards would issue ids of another shard; the message names the shard and the remedy."""


class MaxValueWentBack(AllocatorError):
    """The database holds a lower value than it has already issued; the tag is stopped."""


class ServerReplaced(AllocatorError):
    """The database server changed, and the tag may not skip ids by itself, or has too few left to skip."""


class DatabaseUnavailable(AllocatorError):
    """The database did not answer in time. A retry is safe: ids that the failed call claimed are never issued."""

    pause = 0.0
    """Seconds after which the waiting call repeats the work by itself, within its timeout; 0 if it does not."""


class FleetGrowing(DatabaseUnavailable):
    """The fleet is switching to new shards: no ids for a moment, or until an interrupted growth resumes."""


class TooManyRequests(DatabaseUnavailable):
    """A token used its rate of node and worker numbers, or a proxy limits requests; retry after `seconds`."""

    def __init__(self, message: str, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class NumberConflict(AllocatorError):
    """Two transactions drew numbers without gaps, and this one must be rolled back and run again as a whole."""


class NumberBusy(NumberConflict):
    """Another transaction holds the numbers of the scope, and did not end within the session's lock timeout."""


class AccessDenied(AllocatorError):
    """The service does not know the token, or the token lacks the right. No id was drawn."""


class DatabaseRefused(AllocatorError):
    """The database refuses until somebody changes the user, its rights, the URL, TLS or a setting."""


class SchemaOutOfDate(AllocatorError):
    """The tables are missing, or older or newer than this version needs."""


class SchemaDamaged(AllocatorError):
    """The tables exist but are not as the library made them, as after a change by hand."""


class ForkedUnseen(AllocatorError):
    """C code forked a process that held ids, without Python's fork hooks: ids may have been issued twice."""


class ReentrantCall(AllocatorError):
    """A signal handler or destructor interrupted a call for the same ids, and would deadlock. No id is lost."""


class AllocatorClosed(AllocatorError):
    """The allocator was closed; make a new one."""

    def __init__(self, message: str = "the allocator is closed; make a new one") -> None:
        super().__init__(message)


class NotCopyable(AllocatorError, TypeError):
    """An allocator cannot be copied or pickled: two copies would issue the same ids."""


class Uncopyable:
    """Mixin of classes that hold ids: refuses `copy.copy`, `copy.deepcopy` and `pickle`."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        raise NotCopyable(
            f"{type(self).__name__} cannot be copied or pickled: both copies would issue the same ids; create a new one"
        )
