"""MariaDB and MySQL from images, with the data in a folder of ours and the network of the host."""

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql

from support.servers.available import image_of, or_without
from support.servers.machines import SECONDS, Machine, Postgres, new, until

PAUSE_ATTEMPTS = 50
DATA = "/var/lib/mysql"
FIRST = (
    "CREATE DATABASE ids",
    "CREATE USER tester@'127.0.0.1' IDENTIFIED BY 'tester'",
    "GRANT ALL ON *.* TO tester@'127.0.0.1' WITH GRANT OPTION",
)


class MariaDB(Machine):
    """And a replica that follows by GTID."""

    kind = "mariadb"
    container: Any = None

    @classmethod
    def program_here(cls) -> Path:
        return Path(image_of(cls.kind))

    @property
    def url(self) -> str:
        return f"{self.kind}+pymysql://tester:tester@127.0.0.1:{self.port}/ids"

    def words(self) -> list[str]:
        """What every server of a replication needs; no two may have one number."""
        number = f"--server-id={self.port}"
        return [f"--port={self.port}", number, "--log-bin=log", "--sync-binlog=1", "--skip-name-resolve", *self.extra]

    def prepare(self) -> None:
        """The image makes the data itself, and root, whom the replication does not know."""
        self.data.mkdir()
        self.run([f"--port={self.port}", "--skip-log-bin"])
        until(self.lets_root_in, f"{self.program} is made", 2 * SECONDS)
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
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", password="tester")

    def start(self) -> None:
        self.run(self.words())
        until(self.answers, f"{self.program} answers", SECONDS)

    def run(self, words: list[str]) -> None:
        import docker
        from docker.errors import DockerException

        try:
            self.container = docker.from_env().containers.run(
                str(self.program),
                words,
                detach=True,
                network_mode="host",
                environment={"MYSQL_ROOT_PASSWORD": "tester"},
                volumes={str(self.data): {"bind": DATA, "mode": "rw"}},
            )
        except DockerException as error:
            raise LookupError(f"{self.program} cannot be started: {error}") from error

    def kill(self) -> None:
        self.container.kill()
        self.remove()

    def freeze(self) -> None:
        """On a busy machine Docker gives up too early when a process waits for its disk."""
        from docker.errors import APIError

        for _ in range(PAUSE_ATTEMPTS - 1):
            with suppress(APIError):
                return self.container.pause()
        return self.container.pause()

    def thaw(self) -> None:
        self.container.unpause()

    def stop(self) -> None:
        self.container.kill(signal.SIGTERM)
        self.container.wait(timeout=SECONDS)
        self.remove()

    def remove(self) -> None:
        self.container.remove(force=True)
        self.container.client.close()
        self.container = None

    def close(self) -> None:
        if self.container is not None:
            self.remove()
        super().close()

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

    def words(self) -> list[str]:
        return [*super().words(), "--mysqlx=OFF", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"]

    def follow(self, primary: Machine) -> None:
        (self.data / "auto.cnf").unlink()  # its identity, which a replica must not share
        self.start()
        self.ask(
            f"CHANGE REPLICATION SOURCE TO source_host = '127.0.0.1', source_port = {primary.port}, "
            "source_user = 'tester', source_password = 'tester', source_connect_retry = 1, "
            "source_auto_position = 1, get_source_public_key = 1"
        )
        self.ask("START REPLICA")

    def has_all_of(self, primary: Machine) -> bool:
        (end,) = primary.ask("SELECT @@global.gtid_executed AS done")
        (answer,) = self.ask("SELECT GTID_SUBSET(:done, @@global.gtid_executed) AS here", done=end["done"])
        return bool(answer["here"])

    def unfollow(self) -> None:
        self.ask("STOP REPLICA IO_THREAD")

    def is_cut_off(self) -> bool:
        (status,) = self.ask("SHOW REPLICA STATUS")
        return status["Replica_IO_Running"] == "No"

    def promote(self) -> None:
        self.ask("STOP REPLICA")
        self.ask("RESET REPLICA ALL")


KILLABLE: dict[str, type[Machine]] = {"postgres": Postgres, "mysql": MySQL, "mariadb": MariaDB}


@contextmanager
def killable(kind: str) -> Iterator[Machine]:
    """A server of the caller's own that runs, or a skip."""
    with closing(or_without(kind, lambda: new(KILLABLE[kind]))) as machine:
        machine.start()
        yield machine
