"""Servers whose data lies in a folder of ours: they can be killed, started again, and copied file by file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import text

from support.processes import patience
from support.servers.administrator import administrator
from support.servers.throwaway import children, free_port, signal_all, start, wait_until

M = TypeVar("M", bound="Machine")
SECONDS = 60
"""For a server to start or to stop."""


class Machine:
    """A database server on loopback.

    program: what it is made of: a folder of binaries, a binary, an image.
    place: the folder of it all, removed at the end; its `data` is in it.
    port: stays, so that the server is found again after a start.
    extra: more words for its command.
    """

    kind: str
    goodbye = signal.SIGTERM

    def __init__(self, program: Path, place: Path, port: int = 0, extra: tuple[str, ...] = ()) -> None:
        self.program, self.place, self.port, self.extra = program, place, port or free_port(), extra
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    @abstractmethod
    def program_here(cls) -> Path:
        """The one to take where nothing else is said; raises LookupError where there is none."""

    @property
    def data(self) -> Path:
        return self.place / "data"

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def command(self) -> list[object]:
        """What starts the server in the foreground."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the data of a new server."""

    def as_user(self) -> dict[str, object]:
        """Of the server's process."""
        return {}

    def start(self) -> None:
        self.process = start(self.as_user(), self.command(), self.place)
        wait_until(self.answers, self.process, self.place)

    def answers(self) -> bool:
        try:
            self.ask("SELECT 1")
        except Exception:
            return False
        return True

    def kill(self) -> None:
        """Without a word, as a power cut would."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)  # or it has another child by the time that these are dead
        for process in [*children(self.process.pid), self.process.pid]:
            os.kill(process, signal.SIGKILL)
        self.process.wait(SECONDS)
        self.process = None

    def stop(self) -> None:
        """With all that is written: the files are whole then."""
        assert self.process is not None
        self.process.send_signal(self.goodbye)
        self.process.wait(SECONDS)
        self.process = None

    def freeze(self) -> None:
        """Its connections stay open, and silent."""
        assert self.process is not None
        signal_all(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        signal_all(self.process.pid, signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """While it stands still its files are what a power cut would leave."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def copy(self, port: int = 0, extra: tuple[str, ...] | None = None) -> Self:
        """The files as they are now, in another place, for a server that does not run yet."""
        twin = type(self)(self.program, self.empty_place(), port, self.extra if extra is None else extra)
        twin.take(self.data)
        return twin

    def take(self, data: Path) -> None:
        """Have these files instead of ours."""
        shutil.rmtree(self.data, ignore_errors=True)
        subprocess.run(["cp", "-a", str(data), str(self.data)], check=True)

    def empty_place(self) -> Path:
        place = Path(tempfile.mkdtemp(prefix=f"allocator-{self.kind}-"))
        shutil.copystat(self.place, place)
        if os.getuid() == 0:
            os.chown(place, self.place.stat().st_uid, self.place.stat().st_gid)
        return place

    # -- as a standby, which has all and then receives no more

    @abstractmethod
    def follow(self, primary: Machine) -> None:
        """Start as a copy that has seen nothing yet, and receive what the primary commits, asynchronously."""

    @abstractmethod
    def has_all_of(self, primary: Machine) -> bool: ...

    @abstractmethod
    def unfollow(self) -> None:
        """Receive nothing more."""

    @abstractmethod
    def is_cut_off(self) -> bool: ...

    @abstractmethod
    def promote(self) -> None:
        """Be a primary."""

    # -- as an administrator sees it

    def ask(self, statement: str, **parameters: Any) -> Any:
        """The rows of a statement that an administrator runs, or None."""
        with self.administrator() as run:
            return run(statement, **parameters)

    @contextmanager
    def administrator(self) -> Iterator[Callable[..., Any]]:
        with administrator(self.url, connect_timeout=5) as connection:
            yield lambda statement, **parameters: rows_of(connection.execute(text(statement), parameters))

    def close(self) -> None:
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.place, ignore_errors=True)


class Templates:
    """New servers as copies of one of a kind, which is quicker than to make each."""

    def __init__(self) -> None:
        self._made: dict[tuple[type[Machine], Path], Machine] = {}

    def new(self, kind: type[M], program: Path | None = None, extra: tuple[str, ...] = ()) -> M:
        """A server that was never started. Raises LookupError where there is no such program."""
        key = (kind, program or kind.program_here())
        if key not in self._made:
            self._made[key] = made(kind(key[1], Path(tempfile.mkdtemp(prefix=f"allocator-{kind.kind}-"))))
        return self._made[key].copy(extra=extra)  # type: ignore[return-value]

    def close(self) -> None:
        for machine in self._made.values():
            machine.close()
        self._made.clear()


def made(machine: M) -> M:
    try:
        machine.prepare()
    except BaseException:
        machine.close()
        raise
    return machine


def until(happened: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    if not patience.until(happened, seconds):
        raise LookupError(f"waited for {seconds:g} s until {what}")


def rows_of(result: Any) -> Any:
    return [dict(row) for row in result.mappings()] if result.returns_rows else None
