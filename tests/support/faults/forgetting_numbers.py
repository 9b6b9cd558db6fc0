"""Nodes, workers and tags of which a database has forgotten that it ever gave them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from allocator import Allocator, SnowflakeSettings
from allocator.errors import AllocatorError, DatabaseUnavailable
from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.meteor import METEOR

CROWD = 3
LEASED = SnowflakeSettings(layout=Layout(sign=1, timestamp=41, datacenter=1, worker=2, sequence=19), lease=2.0)
"""Of few workers, so that two crowds cannot miss each other by chance; for so many seconds."""
LATE = "late"
"""A tag that is made when it is used first, which is forgotten."""
IDS = 300
SETTINGS = {"step": 100, "max_step": 100, "timeout": 15.0}


@dataclass
class Crowd:
    """What a number of allocators have at one time, each for itself; and why one has nothing."""

    nodes: list[int] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Crowds:
    """The crowd that is forgotten, and goes on with what it has in memory; and the one that comes then."""

    def __init__(self) -> None:
        self.forgotten, self.fresh = Crowd(), Crowd()
        self.open = ExitStack()

    def draw(self, url: str, into: Crowd) -> None:
        for _ in range(CROWD):
            ids = self.open.enter_context(Allocator(url, snowflake=LEASED, **SETTINGS))
            try:
                into.nodes.append(METEOR.unpack(ids.meteor())["node"])
                into.workers.append(LEASED.layout.unpack(ids.snowflake())["worker"])
            except DatabaseUnavailable as error:
                if "numbers are leased again" not in str(error):  # in a minute
                    into.errors.append(str(error))
            except AllocatorError as error:
                into.errors.append(f"{type(error).__name__}: {error}")
        into.late += [ids.next_id(LATE) for _ in range(IDS)]

    @property
    def nodes_twice(self) -> int:
        return len({*self.forgotten.nodes} & {*self.fresh.nodes})

    @property
    def workers_twice(self) -> int:
        """Leased to two at once."""
        return len({*self.forgotten.workers} & {*self.fresh.workers})

    @property
    def late_twice(self) -> int:
        return len({*self.forgotten.late} & {*self.fresh.late})

    def close(self) -> None:
        self.open.close()
