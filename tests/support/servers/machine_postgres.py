"""PostgreSQL in a folder, from binaries; and a standby that follows it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Self

from allocator.database.schema.tables import VERSION_TABLE, metadata
from support.servers.databases import with_schema
from support.servers.machines import Machine
from support.servers.throwaway import postgres_binaries, run, unprivileged

PASSWORD = "tester"


class Postgres(Machine):
    kind = "postgres"
    goodbye = signal.SIGINT  # at SIGTERM it waits until every session has ended by itself

    @classmethod
    def program_here(cls) -> Path:
        return postgres_binaries()

    @classmethod
    def programs_here(cls) -> list[Path]:
        """Every version that is here."""
        try:
            found = {postgres_binaries()}
        except LookupError:
            found = set()
        return sorted(found | {*Path("/usr/lib/postgresql").glob("*/bin")})

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

    def backup(self) -> Self:
        """A base backup without WAL, in another place, while the server runs."""
        twin = type(self)(self.program, self.empty_place(), self.port, self.extra)
        own = ["-d", f"host=127.0.0.1 port={self.port} user=postgres password={PASSWORD}"]
        run(self.as_user(), [self.program / "pg_basebackup", "-D", twin.data, "-X", "none", *own], self.place)
        return twin

    def upgrade(self, old: Postgres, *how: str) -> None:
        """Take over what another server has, by pg_upgrade; both are stopped."""
        words = ["-b", old.program, "-B", self.program, "-d", old.data, "-D", self.data, "-s", self.place]
        run(self.as_user(), [self.program / "pg_upgrade", "-U", "postgres", *words, *how], self.place)

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


class Green(Postgres):
    """A new server, which follows by logical replication."""

    def command(self) -> list[object]:
        return [*super().command(), "-c", "wal_level=logical"]

    def follow(self, primary: Machine) -> None:
        shutil.rmtree(self.data)
        self.prepare()
        self.start()
        for each in (primary, self):
            with_schema(each.url)
        self.ask("TRUNCATE " + ", ".join([VERSION_TABLE, *metadata.tables]))
        primary.ask("CREATE PUBLICATION blue FOR ALL TABLES")
        blue = f"host=127.0.0.1 port={primary.port} user=postgres password={PASSWORD} dbname=postgres"
        self.ask(f"CREATE SUBSCRIPTION green CONNECTION '{blue}' PUBLICATION blue")

    def has_all_of(self, primary: Machine) -> bool:
        if self.ask("SELECT 1 FROM pg_subscription_rel WHERE srsubstate <> 'r'"):
            return False
        (end,) = primary.ask("SELECT pg_current_wal_flush_lsn()::text AS lsn")
        has = "confirmed_flush_lsn >= CAST(:lsn AS pg_lsn)"
        return bool(primary.ask(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = 'green' AND {has}", **end))

    def unfollow(self) -> None:
        self.ask("ALTER SUBSCRIPTION green DISABLE")

    def is_cut_off(self) -> bool:
        return not self.ask("SELECT 1 FROM pg_stat_subscription WHERE pid IS NOT NULL")

    def promote(self) -> None:
        self.ask("ALTER SUBSCRIPTION green SET (slot_name = NONE)")
        self.ask("DROP SUBSCRIPTION green")
