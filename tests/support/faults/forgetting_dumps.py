"""A logical dump that is loaded again: on another server, in another database, or over the one it came from."""

from __future__ import annotations

import io
import subprocess
import tarfile
from itertools import count
from pathlib import Path

from sqlalchemy import make_url

from allocator.database.schema.tables import VERSION_TABLE, metadata
from support.faults.forgetting import Served
from support.servers.databases import with_schema
from support.servers.machine_images import MariaDBImage, MySQLImage
from support.servers.machine_mysql import MariaDB
from support.servers.machine_postgres import Postgres
from support.servers.machines import M, Machine, Templates, made

OTHER = "other"


class Dumped(Served):
    """By the tools of the database.

    into: "server": another server, behind the same address; "database": another one of this server, with another URL;
        "itself": tables are dropped and made anew; "rows": they are emptied and filled (PostgreSQL).
    """

    def __init__(self, templates: Templates, machine: Machine, into: str) -> None:
        super().__init__(templates, machine)
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
    words = ("--exit-on-error", f"--dbname={url}", *(["--data-only"] if rows else ["--clean", "--if-exists"]))
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
