"""PostgreSQL in a folder, from binaries; and a standby that follows it."""

from __future__ import annotations

import signal
from pathlib import Path

from support.servers.machines import Machine
from support.servers.throwaway import postgres_binaries, run, unprivileged


class Postgres(Machine):
    kind = "postgres"
    goodbye = signal.SIGINT  # at SIGTERM it waits until every session has ended by itself

    @classmethod
    def program_here(cls) -> Path:
        return postgres_binaries()

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

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
        initdb = [self.program / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
        run(self.as_user(), initdb, self.place)

    def follow(self, primary: Machine) -> None:
        (self.data / "standby.signal").touch()
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = 'host=127.0.0.1 port={primary.port} user=postgres'\n")
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
