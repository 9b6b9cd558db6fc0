"""Databases that are brought back from a backup and their own logs, up to a moment before the newest commits."""

from __future__ import annotations

from pathlib import Path

from support.faults.forgetting import Served
from support.faults.forgetting_dumps import inside, load, login, tool
from support.servers.databases import with_schema
from support.servers.machine_images import MariaDBImage
from support.servers.machine_mysql import MariaDB
from support.servers.machine_postgres import Postgres
from support.servers.machines import Machine, Templates, until


class Archived(Served):
    """PostgreSQL recovers in its place: a base backup, and the archived WAL until a point in time."""

    def __init__(self, templates: Templates, machine: Postgres) -> None:
        machine.extra += ("archive_mode=on", f"archive_command=cp %p {machine.place}/%f")
        super().__init__(templates, machine)
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

    def __init__(self, templates: Templates, machine: MariaDB) -> None:
        super().__init__(templates, machine)
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
