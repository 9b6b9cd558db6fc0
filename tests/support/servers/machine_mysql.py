"""MariaDB from binaries; and a replica that follows by GTID."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pymysql

from support.servers.machines import Machine
from support.servers.throwaway import mysql_binary, run, start, wait_until

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
        with pymysql.connect(unix_socket=str(self.socket), user="root") as root, root.cursor() as cursor:
            for statement in FIRST:
                cursor.execute(statement)
        self.stop()

    def lets_root_in(self) -> bool:
        if not listens(self.socket):
            return False
        try:
            pymysql.connect(unix_socket=str(self.socket), user="root").close()
        except pymysql.Error:
            return False
        return True

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


def listens(path: Path) -> bool:
    """Asked first, since PyMySQL does not close a socket that nobody answers."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
