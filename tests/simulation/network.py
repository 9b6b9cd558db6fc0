"""From a thread's statement to its answer: sent, carried out, committed, answered, each an event of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import OperationalError

from simulation.fates import AFTER_COMMIT, Fate
from simulation.scheduler import TIMED_OUT, Task, current
from simulation.store import Act, Server, View

if TYPE_CHECKING:
    from simulation.world import Place

CONTENDED = "40001"
UNDONE_AFTER = 0.01
"""Seconds after which a connection ends whose transaction was left open."""


class Failure(Exception):
    """What the driver raises, with a code or without."""

    def __init__(self, words: str, code: str = "") -> None:
        super().__init__(words)
        self.code = code


def failure(words: str, code: str = "", lost: bool = True) -> OperationalError:
    return OperationalError("", {}, Failure(words, code), connection_invalidated=lost)


class Statement:
    """One on its way. It goes on in the server whatever becomes of its client."""

    __slots__ = ("_act", "_claims", "_fate", "_number", "_place", "_server", "_task")

    def __init__(self, place: Place, server: Server, act: Act, fate: Fate, task: Task) -> None:
        self._place, self._server, self._act, self._fate = place, server, act, fate
        self._task, self._number = task, task.number + 1
        self._claims: list[tuple[str, range]] = []

    def send(self, seconds: float) -> None:
        scheduler, fate = self._place.scheduler, self._fate
        if fate in {Fate.REFUSED, Fate.STALE}:
            self._answer(failure("no connection", lost=fate is Fate.STALE))
        elif fate is not Fate.SWALLOWED:
            scheduler.after(seconds * 1.5 if fate is Fate.GHOST else self._place.latency(), self._arrive)

    def _arrive(self) -> None:
        server = self._server
        if not server.is_up:
            self._answer(failure("the server is gone"))
        elif server.is_frozen:
            self._place.scheduler.after(0.05, self._arrive)
        elif self._fate is Fate.DEADLOCK:
            self._answer(failure("deadlock found", CONTENDED, lost=False))
        else:
            self._begin()

    def _begin(self) -> None:
        begun = self._server.begin(self._act, self._again, self._place.now())
        if begun is not None:
            seconds = self._place.latency() * (40 if self._fate is Fate.SLOW else 1)
            self._place.scheduler.after(seconds if begun[0].written else 0.0, self._commit, *begun)

    def _again(self) -> None:
        """The lock that it waits for is free."""
        self._place.scheduler.after(0.0, self._arrive)

    def _commit(self, view: View, result: Any) -> None:
        server, fate = self._server, self._fate
        if not server.is_up:
            self._answer(failure("the server went away"))
            return
        if server.is_frozen:
            self._place.scheduler.after(0.05, self._commit, view, result)
            return
        if fate is Fate.ROLLED_BACK:
            server.unlock(view)
            self._answer(failure("the commit failed", lost=False))
            return
        if fate is Fate.OPEN:
            self._leave_open(view, result)
            return
        self._place.account.committing(server, view, self._task.process)
        server.commit(view)
        self._claims = view.claims
        if fate is Fate.CUT:
            self._answer(failure("connection lost"))
        elif fate is not Fate.UNKNOWN:
            self._answer(result)

    def _leave_open(self, view: View, result: Any) -> None:
        """Its locks are held until the connection ends, which is never with a commit."""
        self._place.scheduler.after(UNDONE_AFTER, self._server.unlock, view)
        self._answer(result)

    def _answer(self, value: Any) -> None:
        scheduler = self._place.scheduler
        if not self._place.is_cut_off(self._task.process):
            scheduler.after(self._place.latency(), self._arrived, value)

    def _arrived(self, value: Any) -> None:
        self._task.wake(self._number, (value, self._claims))


class Connection:
    """Of one server; `info` stays with it."""

    def __init__(self, place: Place, server: Server, timeout: float) -> None:
        self.place, self.server, self._timeout = place, server, timeout
        self.info: dict[str, Any] = {}
        self.connection = SimpleNamespace(dbapi_connection=self)
        self.begin()

    def begin(self) -> None:
        self.fate = Fate.WELL
        self.is_lost = False
        self.info["warnings"] = []

    def invalidate(self, error: BaseException | None = None) -> None:
        self.is_lost = True

    def perform(self, act: Act) -> Any:
        """Send it and wait for the answer."""
        task = current()
        assert task is not None, "only threads of a process ask a database"
        place = self.place
        self.fate = place.fate(task.process)
        self.info["warnings"] = place.dialect.warnings(self)
        statement = place.world.variant.statement(place, self.server, act, self.fate, task)
        if not place.is_cut_off(task.process):
            statement.send(self._timeout)
        found = task.park(self._timeout)
        if found is TIMED_OUT:
            self.is_lost = True
            raise failure("no answer in time")
        if task.process.stalls:
            seconds, task.process.stalls = task.process.stalls, 0.0
            place.account.counts["threads stalled"] += 1
            task.park(seconds)
        value, claims = found
        if isinstance(value, OperationalError):
            self.is_lost = value.connection_invalidated
            raise value
        if self.fate not in AFTER_COMMIT:
            place.account.answered(task.process, claims)
        return value


class Engine:
    """Connections of one process to one place, kept for the next statement as a pool keeps them."""

    pool = None

    def __init__(self, place: Place, timeout: float) -> None:
        self._place, self._timeout = place, timeout
        self._idle: list[Connection] = []

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        connection = self._idle.pop() if self._idle else self._open()
        connection.begin()
        try:
            yield connection
        finally:
            if not connection.is_lost:
                self._idle.append(connection)

    def _open(self) -> Connection:
        task = current()
        assert task is not None
        if self._place.is_cut_off(task.process):
            task.park(self._timeout)
            raise failure("no route", lost=False)
        server = self._place.server_for(task.process)
        if not server.is_up:
            task.park(self._place.latency())
            raise failure("connection refused", lost=False)
        return Connection(self._place, server, self._timeout)

    def dispose(self, close: bool = True) -> None:
        self._idle.clear()
