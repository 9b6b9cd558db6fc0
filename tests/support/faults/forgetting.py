"""Databases that forget what they had committed: one story, `part` and `strike`, for each way in which it happens."""

import io
import shutil
import sqlite3
import subprocess
import tarfile
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

from sqlalchemy import make_url

from allocator.database.tables import VERSION_TABLE, metadata
from support.closing import Closing
from support.faults.wire import Wire
from support.servers.databases import with_schema
from support.servers.machine_images import MariaDBImage, MySQLImage
from support.servers.machines import M, Machine, MariaDB, Postgres, made, until


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
        if not self.stopped:
            with self.machine.frozen():
                self.backup = self.add(self.machine.copy())
            return
        self.machine.stop()
        self.backup = self.add(self.machine.copy())
        self.machine.start()
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


# -- A file of SQLite that is replaced by an older copy of itself, in the ways that people have


QUIET = 0.3
"""Seconds without a write."""

Way = Callable[[Path, Path], None]


def overwritten(copy: Path, file: Path) -> None:
    """`cp`: the same inode."""
    subprocess.run(["cp", str(copy), str(file)], check=True)


def renamed(copy: Path, file: Path) -> None:
    """`mv`: another inode."""
    copy.rename(file)


def removed(copy: Path, file: Path) -> None:
    """`rm`, then `cp`: another inode, or the same number again."""
    file.unlink()
    shutil.copyfile(copy, file)


def loaded(copy: Path, file: Path) -> None:
    """`.restore` of SQLite's shell: page by page, as a transaction on the file itself."""
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(file)) as target:
        source.backup(target)


def dumped(copy: Path, file: Path) -> None:
    """`.dump` of the copy, read into a new file in its place."""
    with closing(sqlite3.connect(copy)) as source:
        script = "\n".join(source.iterdump())
    file.unlink()
    with closing(sqlite3.connect(file)) as target:
        target.executescript(script)


RENAMED: tuple[Way, ...] = (renamed,)
SAME_FILE: tuple[Way, ...] = (overwritten, loaded)
BY_LUCK: tuple[Way, ...] = (removed, dumped)
"""Some file systems give the number of a file that was removed to the next one."""


class Replaced(Forgetful):
    fragile = True  # SQLite would write its pages into the copy, or take the journal of one file for the other's

    def __init__(self, folder: Path, way: Way) -> None:
        self.file, self.copy, self.way = folder / "ids.db", folder / "copy.db", way
        self.url = f"sqlite:///{self.file}"
        with_schema(self.url)

    def part(self) -> None:
        self.wait_until_quiet()
        subprocess.run(["cp", str(self.file), str(self.copy)], check=True)

    def strike(self) -> None:
        self.wait_until_quiet()
        self.way(self.copy, self.file)

    def wait_until_quiet(self) -> None:
        """The last claims in advance are under way when all that was wanted has been drawn."""
        until(lambda: time.time() - self.file.stat().st_mtime > QUIET, "nobody writes")

    def close(self) -> None:
        pass


# -- A logical dump that is loaded again: on another server, in another database, or over the one it came from


OTHER = "other"


class Dumped(Served):
    """By the tools of the database.

    into: "server": another server, behind the same address; "database": another one of this server, with another URL;
        "itself": tables are dropped and made anew; "rows": they are emptied and filled (PostgreSQL).
    """

    def __init__(self, machine: Machine, into: str) -> None:
        super().__init__(machine)
        self.into = into
        self.another = self.add(stranger(machine)) if into == "server" else machine
        with_schema(machine.url)

    def part(self) -> None:
        self.dump = dump(self.machine)

    def strike(self) -> None:
        if self.into == "server":
            self.machine.kill()
            self.another.start()
            load(self.another, self.dump)
            self.wire.lead_to(self.another.url)
        elif self.into == "database":
            self.machine.ask(f"CREATE DATABASE {OTHER}")
            load(self.machine, self.dump, name=OTHER)
            self.url = make_url(self.url).set(database=OTHER).render_as_string(hide_password=False)
        else:
            load(self.machine, self.dump, rows=self.into == "rows")


def stranger(machine: M) -> M:
    """A new server, which shares no template with the old one, and so no identity."""
    return made(type(machine)(machine.program, machine.empty_place()))


def name_of(machine: Machine) -> str:
    return str(make_url(machine.url).database)


def dump(machine: Machine) -> bytes:
    if isinstance(machine, Postgres):
        return tool(machine.program / "pg_dump", "--format=custom", machine.url.replace("+psycopg", ""))
    if isinstance(machine, MySQLImage):
        return inside(machine, "mysqldump", "--set-gtid-purged=OFF", name_of(machine))
    return tool(Path("mariadb-dump"), *login(machine), name_of(machine))


def load(machine: Machine, dumped: bytes, name: str = "", rows: bool = False) -> None:
    name = name or name_of(machine)
    if isinstance(machine, Postgres):
        restore(machine, dumped, name, rows)
    elif isinstance(machine, MySQLImage):
        inside(machine, "mysql", name, given=dumped)
    elif isinstance(machine, MariaDB):
        tool(Path("mariadb"), *login(machine), name, given=dumped)


def restore(machine: Postgres, dumped: bytes, name: str, rows: bool) -> None:
    url = make_url(machine.url).set(database=name, drivername="postgresql").render_as_string(False)
    how = ["--data-only"] if rows else ["--clean", "--if-exists", "--single-transaction"]  # else tables lack their keys
    words = ("--exit-on-error", f"--dbname={url}", *how)
    for attempt in count():
        if rows:
            machine.ask("TRUNCATE " + ", ".join([VERSION_TABLE, *metadata.tables]))
        try:
            tool(machine.program / "pg_restore", *words, given=dumped)
        except AssertionError as error:
            if "duplicate key" not in str(error) or attempt > 5:  # else a process that draws wrote its row in between
                raise
        else:
            return


def login(machine: Machine) -> list[str]:
    return ["--no-defaults", "--host=127.0.0.1", f"--port={machine.port}", "--user=tester", "--password=tester"]


def tool(program: Path, *words: str, given: bytes = b"") -> bytes:
    done = subprocess.run([str(program), *words], input=given, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def inside(machine: MariaDBImage, program: str, *words: str, given: bytes = b"") -> bytes:
    """By the tool of the image, which speaks the server's own protocol."""
    with io.BytesIO() as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("given")
        member.size = len(given)
        archive.addfile(member, io.BytesIO(given))
        archive.close()
        machine.container.put_archive("/tmp", packed.getvalue())
    command = " ".join([program, *login(machine), *words, "< /tmp/given"])
    code, (out, errors) = machine.container.exec_run(["sh", "-c", command], demux=True)
    assert code == 0, errors.decode()
    return out or b""


# -- databases that are brought back from a backup and their own logs, up to a moment before the newest commits


class Archived(Served):
    """PostgreSQL recovers in its place: a base backup, and the archived WAL until a point in time."""

    def __init__(self, machine: Postgres) -> None:
        machine.extra += ("archive_mode=on", f"archive_command=cp %p {machine.place}/%f")
        super().__init__(machine)
        with_schema(machine.url)
        self.backup = self.add(machine.backup())

    def part(self) -> None:
        (now,) = self.machine.ask("SELECT clock_timestamp()::text AS moment")
        self.moment = now["moment"]

    def strike(self) -> None:
        (last,) = self.machine.ask("SELECT pg_walfile_name(pg_switch_wal()) AS file")
        archived = "SELECT 1 FROM pg_stat_archiver WHERE last_archived_wal >= :file"
        until(lambda: self.machine.ask(archived, **last), "the archive has all")
        self.machine.kill()
        (self.backup.data / "recovery.signal").touch()
        with (self.backup.data / "postgresql.auto.conf").open("a") as file:
            file.write(f"restore_command = 'cp {self.machine.place}/%f %p'\nrecovery_target_action = 'promote'\n")
            file.write(f"recovery_target_time = '{self.moment}'\n")
        self.machine.take(self.backup.data)
        self.machine.start()
        until(lambda: self.machine.ask("SELECT 1 WHERE NOT pg_is_in_recovery()"), "the recovery ends")
        self.wire.cut()


class Replayed(Served):
    """MySQL and MariaDB recover in their place: a copy of the files, and the binary logs since then."""

    fragile = True  # what is drawn while the logs are replayed is neither the old nor the new

    def __init__(self, machine: MariaDB) -> None:
        super().__init__(machine)
        with_schema(machine.url)
        machine.stop()
        self.backup = self.add(machine.copy())
        machine.start()
        self.first = self.logs()[-1]

    def logs(self) -> list[str]:
        return [log["Log_name"] for log in self.machine.ask("SHOW BINARY LOGS")]

    def part(self) -> None:
        self.machine.ask("FLUSH BINARY LOGS")
        self.last = self.logs()[-1]

    def strike(self) -> None:
        logs = self.logs()
        kept = logs[logs.index(self.first) : logs.index(self.last)]
        replayed = read(self.machine, kept)
        self.machine.kill()
        self.machine.take(self.backup.data)
        self.machine.start()
        load(self.machine, replayed)
        self.wire.cut()


def read(machine: Machine, logs: list[str]) -> bytes:
    """Binary logs, as SQL."""
    if isinstance(machine, MariaDBImage):
        program = "mysqlbinlog" if machine.kind == "mysql" else "mariadb-binlog"
        return inside(machine, program, "--read-from-remote-server", *logs)
    return tool(Path("mariadb-binlog"), *login(machine), "--read-from-remote-server", *logs)
