"""Servers whose data lies in a folder of ours: they can be killed, started again, and copied file by file."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import pymysql
from sqlalchemy import text

from support.closing import Closing
from support.processes import patience
from support.servers.administrator import administrator
from support.servers.throwaway import (
    children,
    free_port,
    mysql_binary,
    postgres_binaries,
    run,
    start,
    unprivileged,
    wait_until,
)

M = TypeVar("M", bound="Machine")
SECONDS = 60
"""For a server to start or to stop."""


class Machine:
    """A database server on loopback.

    program: what it is made of: a folder of binaries, a binary, an image.
    place: the folder of it all, removed at the end; its `data` is in it.
    port: so that the server is found again after a start.
    extra: more words for its command.
    """

    kind: str
    goodbye = signal.SIGTERM

    def __init__(self, program: Path, place: Path, extra: tuple[str, ...]) -> None:
        self.program, self.place, self.port, self.extra = program, place, free_port(), extra
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
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """To the server and its children, which PostgreSQL puts into process groups of their own."""
        assert self.process is not None
        os.kill(self.process.pid, number)
        for child in children(self.process.pid):
            os.kill(child, number)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """While it stands still its files are what a power cut would leave."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

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
        if self.process is not None:
            self.kill()
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


# -- mariaDB from binaries; and a replica that follows by GTID


FIRST = (
    "CREATE DATABASE ids",
    "CREATE USER tester@'127.0.0.1' IDENTIFIED BY 'tester'",
    "GRANT ALL ON *.* TO tester@'127.0.0.1' WITH GRANT OPTION",
)


class MariaDB(Machine):
    kind = "mariadb"

    @classmethod
    def program_here(cls) -> Path:
        return Path(mysql_binary(cls.kind))

    @property
    def url(self) -> str:
        return f"{self.kind}+pymysql://tester:tester@127.0.0.1:{self.port}/ids"

    def words(self) -> list[str]:
        """What every server of a replication needs; no two may have one number."""
        number = f"--server-id={self.port}"
        return [f"--port={self.port}", number, "--log-bin=log", "--sync-binlog=1", "--skip-name-resolve", *self.extra]

    def common(self) -> list[object]:
        owner = ["--user=root"] if os.getuid() == 0 else []
        return [self.program, "--no-defaults", *owner, f"--datadir={self.data}", f"--socket={self.socket}"]

    def command(self) -> list[object]:
        # The kernel's asynchronous I/O is for a few servers on a machine.
        own = ["--bind-address=127.0.0.1", f"--pid-file={self.place}/pid", "--innodb-use-native-aio=0"]
        return [*self.common(), *own, *self.words()]

    @property
    def socket(self) -> Path:
        return self.place / "s.sock"

    def initialize(self) -> None:
        install = shutil.which("mariadb-install-db")
        if install is None:
            raise LookupError("mariadbd is here, mariadb-install-db is not")
        auth = "--auth-root-authentication-method=normal"
        run({}, [install, *self.common()[1:], auth, "--skip-test-db"], self.place)  # with `test`, anybody may log in

    def prepare(self) -> None:
        self.initialize()
        self.process = start({}, [*self.common(), "--skip-networking"], self.place)
        wait_until(self.lets_root_in, self.process, self.place)
        self.make_tester()

    def make_tester(self) -> None:
        with self.root() as root, root.cursor() as cursor:
            for statement in FIRST:
                cursor.execute(statement)
        self.stop()

    def lets_root_in(self) -> bool:
        try:
            self.root().close()
        except (pymysql.Error, OSError):
            return False
        return True

    def root(self) -> Any:
        with socket.socket(socket.AF_UNIX) as probe:  # since PyMySQL does not close a socket that nobody answers
            probe.connect(str(self.socket))
        return pymysql.connect(unix_socket=str(self.socket), user="root")

    # -- as a replica

    def follow(self, primary: Machine) -> None:
        self.start()
        self.ask(
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {primary.port}, master_user = 'tester', "
            "master_password = 'tester', master_connect_retry = 1, master_use_gtid = slave_pos"
        )
        self.ask("START SLAVE")

    def has_all_of(self, primary: Machine) -> bool:
        (end,) = primary.ask("SELECT @@gtid_binlog_pos AS position")
        (answer,) = self.ask("SELECT MASTER_GTID_WAIT(:position, 0) AS late", position=end["position"])
        return answer["late"] == 0

    def unfollow(self) -> None:
        self.ask("STOP SLAVE IO_THREAD")

    def is_cut_off(self) -> bool:
        (status,) = self.ask("SHOW SLAVE STATUS")
        return status["Slave_IO_Running"] == "No"

    def promote(self) -> None:
        self.ask("STOP SLAVE")
        self.ask("RESET SLAVE ALL")


class MySQL(MariaDB):
    kind = "mysql"

    def initialize(self) -> None:
        run({}, [*self.common(), "--initialize-insecure"], self.place)


# -- postgreSQL in a folder, from binaries; and a standby that follows it


PASSWORD = "tester"


class Postgres(Machine):
    kind = "postgres"
    goodbye = signal.SIGINT  # at SIGTERM it waits until every session has ended by itself

    @classmethod
    def program_here(cls) -> Path:
        return postgres_binaries()

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def as_user(self) -> dict[str, object]:
        return unprivileged(self.place)

    def command(self) -> list[object]:
        own = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.place}"]
        return [
            self.program / "postgres",
            "-D",
            self.data,
            *(word for setting in (*own, *self.extra) for word in ("-c", setting)),
        ]

    def prepare(self) -> None:
        (secret := self.place / "secret").write_text(PASSWORD)
        secret.chmod(0o644)
        auth = ["-k", "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}"]
        initdb = [self.program / "initdb", "-D", self.data, "-U", "postgres", *auth, "-E", "UTF8", "--locale=C"]
        run(self.as_user(), initdb, self.place)

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
