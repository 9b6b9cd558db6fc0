"""Databases that forget what they had committed: what is drawn before, while and after it happens, and the ways.

Each way is one story: `part` and `strike`.
"""

import subprocess
import sys
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from allocator import Allocator
from allocator.errors import AllocatorError, DatabaseUnavailable
from allocator.schemes.shared.retry_pace import RETRY_PAUSE
from support.closing import Closing
from support.distinct import none_twice
from support.faults.wire import Wire
from support.servers.available import or_without
from support.servers.databases import with_schema
from support.servers.machine_images import KILLABLE
from support.servers.machines import Machine, Templates, until


class Forgetful(Closing):
    """A database with the schema, for processes that find it by `url`, before and after.

    part: everything so far is kept; from here on, all that is committed will be forgotten.
    strike: it is forgotten, and the database is there again.
    fragile: nobody may write just then, or what comes of it is neither the old nor the new.
    """

    url: str
    fragile = False

    @abstractmethod
    def part(self) -> None: ...

    @abstractmethod
    def strike(self) -> None: ...


class Served(Forgetful):
    """A server behind an address that can lead to another one."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.machines = machine, [machine]
        machine.start()
        self.wire = Wire(machine.url)
        self.url = self.wire.url

    def add(self, machine: Machine) -> Machine:
        self.machines.append(machine)
        return machine

    def close(self) -> None:
        with suppress(AttributeError):  # of one that did not start
            self.wire.close()
        for machine in self.machines:
            machine.close()


class Promoted(Served):
    """The primary is killed with commits that its asynchronous standby has not received, and that is promoted."""

    def __init__(self, machine: Machine) -> None:
        untouched = machine.copy()
        super().__init__(machine)
        self.standby = self.add(untouched)
        self.standby.follow(machine)
        with_schema(machine.url)

    def part(self) -> None:
        until(lambda: self.standby.has_all_of(self.machine), "the standby has all")
        self.standby.unfollow()
        until(self.standby.is_cut_off, "the standby is cut off")

    def strike(self) -> None:
        self.machine.kill()
        self.standby.promote()
        self.wire.lead_to(self.standby.url)


class Restored(Served):
    """An older copy of the server's files is put back, in their place or in another one.

    elsewhere: in another place, as another server, while the old one is gone.
    stopped: the copy is that of a server at rest, which is started again then; otherwise that of one which stands
        still for a moment, as the snapshot of a disk.
    """

    def __init__(self, machine: Machine, *, elsewhere: bool = False, stopped: bool) -> None:
        super().__init__(machine)
        self.elsewhere, self.stopped = elsewhere, stopped
        with_schema(machine.url)

    def part(self) -> None:
        halt, go_on = (
            (self.machine.stop, self.machine.start) if self.stopped else (self.machine.freeze, self.machine.thaw)
        )
        halt()
        self.backup = self.add(self.machine.copy())
        go_on()
        if self.stopped:
            self.wire.cut()

    def strike(self) -> None:
        self.machine.kill()
        if self.elsewhere:
            self.backup.start()
            self.wire.lead_to(self.backup.url)
        else:
            self.machine.take(self.backup.data)
            self.machine.start()
            self.wire.cut()


# -- A file of SQLite that is replaced by an older copy of itself


QUIET = 0.3
"""Seconds without a write."""


class Replaced(Forgetful):
    fragile = True  # SQLite would write its pages into the copy, or take the journal of one file for the other's

    def __init__(self, folder: Path, by: str) -> None:
        """by: the command that replaces it: `mv` makes another inode, `cp` keeps it."""
        self.file, self.copy, self.by = folder / "ids.db", folder / "copy.db", by
        self.url = f"sqlite:///{self.file}"
        with_schema(self.url)

    def part(self) -> None:
        self.wait_until_quiet()
        subprocess.run(["cp", str(self.file), str(self.copy)], check=True)

    def strike(self) -> None:
        self.wait_until_quiet()
        subprocess.run([self.by, str(self.copy), str(self.file)], check=True)

    def wait_until_quiet(self) -> None:
        """The last claims in advance are under way when all that was wanted has been drawn."""
        until(lambda: time.time() - self.file.stat().st_mtime > QUIET, "nobody writes")

    def close(self) -> None:
        pass


# -- what several processes draw before, while and after their database forgets: the same story for each


STEP = 100
GAPS = {"off": 0, "gap": "auto", "refuse": "refuse", "busy": "auto"}
"""The tags, one for each policy; and one that is drawn from, slowly, all the time."""
BUSY = {"count": 300, "pause": 0.005, "patience": 60.0}
KEPT, LOST, AFTER = 3 * STEP, 5 * STEP, 7 * STEP
"""How many ids a process draws: more are forgotten than remain in its memory."""
SETTINGS = {"step": STEP, "max_step": STEP, "timeout": 15.0}


@dataclass
class Drawn:
    """Ids, and the error that ended the draw early, as `Name: words`."""

    ids: list[int] = field(default_factory=list)
    error: str | None = None

    @property
    def failure(self) -> str:
        """The name of the error, empty where there was none."""
        return (self.error or "").partition(":")[0]


def draw(allocator: Allocator, tag: str, count: int, pause: float = 0.0, patience: float = 0.0) -> Drawn:
    """pause: seconds between two ids. patience: for so long an absent database is borne with."""
    drawn, end = Drawn(), time.monotonic() + patience
    while len(drawn.ids) < count and drawn.error is None:
        try:
            drawn.ids.append(allocator.next_id(tag))
            time.sleep(pause)
        except AllocatorError as error:
            if not isinstance(error, DatabaseUnavailable) or time.monotonic() > end:
                drawn.error = f"{type(error).__name__}: {error}"
    return drawn


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

    repaired: by an operator, before anybody draws.
    running: whether the three run while it happens, or begin anew afterwards.
    """

    def __init__(self, place: Forgetful, *, running: bool = True, repaired: bool = False) -> None:
        self.place, self.running, self.repaired = place, running, repaired
        self.told = {tag: Told() for tag in GAPS}
        self.open = ExitStack()

    def tell(self) -> Self:
        with ThreadPoolExecutor(5) as self.pool, self.open:
            self.play()
        return self

    def play(self) -> None:
        self.make_tags()
        self.old, self.busy, self.fresh = self.some(3), *self.some(2)
        self.draw_before(self.old, KEPT)
        self.place.part()
        self.draw_before(self.old[:2], LOST)
        self.forget()
        self.draw_after()

    def make_tags(self) -> None:
        with Allocator(self.place.url, **SETTINGS) as ids:
            for tag, gap in GAPS.items():
                ids.tags.create(tag, failover_gap=gap)

    def forget(self) -> None:
        if not self.running:
            self.open.close()
        elif not self.place.fragile:
            drawing = self.pool.submit(draw, self.busy, "busy", **BUSY)
        self.place.strike()
        if self.repaired:
            command(self.place.url, "db", "mark-restored")
        if not self.running:
            self.old, self.busy, self.fresh = self.some(3), *self.some(2)
        if self.place.fragile or not self.running:
            drawing = self.pool.submit(draw, self.busy, "busy", **BUSY)
        self.told["busy"].old = [drawing.result()]

    def some(self, count: int) -> list[Allocator]:
        return [self.open.enter_context(Allocator(self.place.url, **SETTINGS)) for _ in range(count)]

    def together(self, drawers: list[Allocator], tag: str, count: int) -> list[Drawn]:
        """At once."""
        return list(self.pool.map(lambda one: draw(one, tag, count), drawers))

    def of_all(self) -> list[tuple[str, Told]]:
        return [(tag, told) for tag, told in self.told.items() if tag != "busy"]

    def draw_before(self, old: list[Allocator], count: int) -> None:
        for tag, told in self.of_all():
            drawn = self.together(old, tag, count)
            assert not [part.error for part in drawn if part.error], drawn
            told.before += drawn

    def draw_after(self) -> None:
        everybody = [self.fresh, *self.old]
        for tag, told in self.of_all():
            told.fresh, *told.old = self.together(everybody, tag, AFTER)
        command(self.place.url, "tags", "repair", "refuse")
        time.sleep(2 * RETRY_PAUSE)  # until then they say what they know
        self.told["refuse"].repaired = self.together(everybody, "refuse", AFTER)


def command(url: str, *words: str) -> None:
    """As an operator does it."""
    words = (sys.executable, "-m", "allocator", *words, "--url", url)
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)


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


def nothing_is_noticed(story: Story) -> None:
    """Or the documentation promises less than we hold."""
    for tag in ("gap", "refuse"):
        assert story.told[tag].duplicates > 0


VERDICTS = (the_control_repeats_ids, a_gap_needs_nobody, a_refusal_waits_for_a_repair)


# -- every way in which a database is made to forget, by name: `mariadb-restored-elsewhere-cold`


@dataclass(frozen=True, slots=True)
class Scene:
    """kind: of the database. running: see `Story`."""

    kind: str
    make: Callable[[Templates, Path], Forgetful]
    running: bool = True

    def play(self, templates: Templates, folder: Path, *, repaired: bool = False) -> Story:
        folder.mkdir(parents=True, exist_ok=True)
        with or_without(self.kind, lambda: self.make(templates, folder)) as place:
            return Story(place, running=self.running, repaired=repaired).tell()


def scene(kind: str, how: Callable[..., Forgetful], *extra: str, **more: Any) -> Scene:
    """A server that forgets in this way. extra: more words for its command; more: of the way."""
    return Scene(kind, lambda templates, folder: how(templates.new(KILLABLE[kind], extra), **more))


def of_sqlite(name: str, by: str) -> dict[str, Scene]:
    ends = {"running": True, "at-rest": False}
    return {f"sqlite-{name}-{end}": Scene("sqlite", lambda _, to: Replaced(to, by), ends[end]) for end in ends}


TELLING = {"mariadb-restored-elsewhere-cold": scene("mariadb", Restored, elsewhere=True, stopped=True)}
"""MariaDB has another port, folder or host name there; the others take their identity with them."""
UNNOTICED = of_sqlite("overwritten", "cp")
UNNOTICED |= {f"{kind}-restored-here-snapshot": scene(kind, Restored, stopped=False) for kind in KILLABLE}
UNNOTICED |= {
    f"{kind}-restored-elsewhere-cold": scene(kind, Restored, elsewhere=True, stopped=True)
    for kind in ("postgres", "mysql")
}
"""What tells nothing of having been replaced, until an operator does: `allocator db mark-restored`."""
PROMOTED = {f"{kind}-promoted": scene(kind, Promoted) for kind in KILLABLE}
NOT_DURABLE = {
    f"{kind}-not-durable-{setting}": scene(kind, Restored, setting, stopped=False)
    for kind, setting in (
        ("postgres", "fsync=off"),
        ("mariadb", "--innodb-flush-log-at-trx-commit=2"),
        ("mariadb", "--sync-binlog=0"),
        ("mysql", "--innodb-flush-log-at-trx-commit=2"),
    )
}
"""Servers that say so themselves lose their newest commits in a crash: an older state, on the same server."""
SCENES = of_sqlite("renamed", "mv") | PROMOTED | TELLING | NOT_DURABLE
