"""What several processes draw before, while and after their database forgets: the same story for every database."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from typing import Self

from allocator import Allocator, SnowflakeSettings
from allocator.errors import AllocatorError, DatabaseUnavailable
from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.meteor import METEOR
from allocator.schemes.shared.retry_pace import RETRY_PAUSE
from support.distinct import none_twice
from support.faults.forgetting import Forgetful
from support.processes.drawers import Drawer, Drawn, Process, draw_together

STEP = 100
GAPS = {"off": 0, "gap": "auto", "refuse": "refuse", "busy": "auto"}
"""The tags, one for each policy; and one that is drawn from, slowly, all the time."""
BUSY = {"count": 300, "pause": 0.005, "patience": 60.0}
KEPT, LOST, AFTER = 3 * STEP, 5 * STEP, 7 * STEP
"""How many ids a process draws: more are forgotten than remain in its memory."""
SETTINGS = {"step": STEP, "max_step": STEP, "timeout": 15.0}


@dataclass
class Told:
    """What was drawn of one tag, and who was refused.

    before: the ids of claims that are kept, and of those that are forgotten.
    fresh, old: afterwards, of a process that has seen nothing, and of those that drew before.
    repaired: after a repair, of all of them.
    """

    before: list[Drawn] = field(default_factory=list)
    fresh: Drawn = field(default_factory=Drawn)
    old: list[Drawn] = field(default_factory=list)
    repaired: list[Drawn] = field(default_factory=list)

    def parts(self) -> Iterator[Drawn]:
        yield from (*self.before, self.fresh, *self.old, *self.repaired)

    @property
    def ids(self) -> int:
        return sum(len(part.ids) for part in self.parts())

    @property
    def duplicates(self) -> int:
        counted = Counter(number for part in self.parts() for number in part.ids)
        return self.ids - len(counted)

    @property
    def failures(self) -> list[str]:
        return [part.failure for part in (self.fresh, *self.old) if part.error]


class Story:
    """Two allocators draw, and go on when their database has forgotten. A third one draws nothing of what is
    forgotten, and a fourth one comes afterwards: those two cannot know that anything is missing.

    drawer: where they are.
    repaired: by an operator, before anybody draws.
    running: whether the three run while it happens, or begin anew afterwards.
    """

    def __init__(
        self,
        place: Forgetful,
        drawer: type[Drawer] = Process,
        *,
        running: bool = True,
        repaired: bool = False,
    ) -> None:
        self.place, self.drawer, self.running, self.repaired = place, drawer, running, repaired
        self.told = {tag: Told() for tag in GAPS}
        self.crowds = Crowds()
        self.drawers: list[Drawer] = []

    def tell(self) -> Self:
        try:
            self.play()
        finally:
            self.end_all()
        return self

    def play(self) -> None:
        self.make_tags()
        self.old, self.busy, self.fresh = self.some(3), *self.some(2)
        self.draw_before(self.old, KEPT)
        self.place.part()
        self.draw_before(self.old[:2], LOST)
        self.crowds.draw(self.place.url, self.crowds.forgotten)
        self.forget()
        self.draw_after()
        self.crowds.draw(self.place.url, self.crowds.fresh)

    def make_tags(self) -> None:
        with Allocator(self.place.url, **SETTINGS) as ids:
            for tag, gap in GAPS.items():
                ids.tags.create(tag, failover_gap=gap)

    def forget(self) -> None:
        if not self.running:
            self.end_all()
        elif not self.place.fragile:
            self.busy.begin("busy", **BUSY)
        self.crowds.struck_at = time.monotonic()
        self.place.strike()
        if self.repaired:
            command(self.place.url, "db", "mark-restored")
        if not self.running:
            self.old, self.busy, self.fresh = self.some(3), *self.some(2)
        if self.place.fragile or not self.running:
            self.busy.begin("busy", **BUSY)
        self.told["busy"].old = [self.busy.end()]

    def end_all(self) -> None:
        self.crowds.close()
        while self.drawers:
            self.drawers.pop().close()

    def some(self, count: int) -> list[Drawer]:
        made = [self.drawer(self.place.url, **SETTINGS) for _ in range(count)]
        self.drawers += made
        return made

    def of_all(self) -> list[tuple[str, Told]]:
        return [(tag, told) for tag, told in self.told.items() if tag != "busy"]

    def draw_before(self, old: list[Drawer], count: int) -> None:
        for tag, told in self.of_all():
            drawn = draw_together(old, tag, count)
            assert not [part.error for part in drawn if part.error], drawn
            told.before += drawn

    def draw_after(self) -> None:
        everybody = [self.fresh, *self.old]
        for tag, told in self.of_all():
            told.fresh, *told.old = draw_together(everybody, tag, AFTER)
        command(self.place.url, "tags", "repair", "refuse")
        time.sleep(2 * RETRY_PAUSE)  # until then they say what they know
        self.told["refuse"].repaired = draw_together(everybody, "refuse", AFTER)


def command(url: str, *words: str) -> None:
    """As an operator does it."""
    words = (sys.executable, "-m", "allocator", *words, "--url", url)
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)


# -- nodes, workers and tags of which a database has forgotten that it ever gave them


CROWD = 3
LEASED = SnowflakeSettings(layout=Layout(sign=1, timestamp=41, datacenter=1, worker=2, sequence=19), lease=2.0)
"""Of few workers, so that two crowds cannot miss each other by chance; for so many seconds."""
WAIT = 60.0
"""Seconds after a failover in which no worker is leased."""
LATE = "late"
"""A tag that is made when it is used first, which is forgotten."""
IDS = 300


@dataclass
class Crowd:
    """What a number of allocators have at one time, each for itself; and why one has nothing.

    workers: those that are leased before the minute after the failover has passed.
    """

    nodes: list[int] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Crowds:
    """The crowd that is forgotten, and goes on with what it has in memory; and the one that comes then."""

    def __init__(self) -> None:
        self.forgotten, self.fresh = Crowd(), Crowd()
        self.open = ExitStack()
        self.struck_at = inf

    def draw(self, url: str, into: Crowd) -> None:
        for _ in range(CROWD):
            ids = self.open.enter_context(Allocator(url, snowflake=LEASED, **SETTINGS))
            try:
                into.nodes.append(METEOR.unpack(ids.meteor())["node"])
                worker = LEASED.layout.unpack(ids.snowflake())["worker"]
                if time.monotonic() < self.struck_at + WAIT:
                    into.workers.append(worker)
            except DatabaseUnavailable as error:
                if "numbers are leased again" not in str(error):  # in a minute
                    into.errors.append(str(error))
            except AllocatorError as error:
                into.errors.append(f"{type(error).__name__}: {error}")
        into.late += [ids.next_id(LATE) for _ in range(IDS)]

    def close(self) -> None:
        self.open.close()


# -- what must hold of a story of a database that forgets, whichever it is; each part fails on its own


def the_control_repeats_ids(story: Story) -> None:
    """Without a gap, or the test shows nothing: a process that has not seen what was lost gives it again."""
    off = story.told["off"]
    assert off.duplicates >= AFTER // 2, off
    assert off.fresh.error is None


def a_gap_needs_nobody(story: Story) -> None:
    """No id twice, and nobody is refused: neither who saw what was lost, nor who did not."""
    for told in (story.told["gap"], story.told["busy"]):
        none_twice(told.duplicates)
        assert not told.failures, told.failures


def a_refusal_waits_for_a_repair(story: Story) -> None:
    refuse = story.told["refuse"]
    assert (refuse.fresh.failure, refuse.fresh.ids) == ("ServerReplaced", [])
    assert {part.failure for part in refuse.old} == {"ServerReplaced"}
    assert [part.error for part in refuse.repaired] == [None] * len(refuse.repaired)
    assert all(len(part.ids) == AFTER for part in refuse.repaired)
    none_twice(refuse.duplicates)


def no_number_is_given_again(story: Story) -> None:
    """Nodes that were registered and forgotten, workers that were leased, and a tag that was made; a worker that may be
    forgotten is leased to nobody for a minute."""
    forgotten, fresh = story.crowds.forgotten, story.crowds.fresh
    assert forgotten.errors + fresh.errors == []
    none_twice({*forgotten.nodes} & {*fresh.nodes}, "nodes")
    none_twice({*forgotten.workers} & {*fresh.workers}, "workers")
    none_twice({*forgotten.late} & {*fresh.late}, "a tag made late")


def nothing_is_noticed(story: Story) -> None:
    """Or the documentation promises less than we hold."""
    for tag in ("gap", "refuse"):
        assert story.told[tag].duplicates > 0


VERDICTS = (the_control_repeats_ids, a_gap_needs_nobody, a_refusal_waits_for_a_repair, no_number_is_given_again)
