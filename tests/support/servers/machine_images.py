"""Servers from images, with the data in a folder of ours and the network of the host."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pymysql

from support.servers.available import first, image_of, or_without
from support.servers.machines import PASSWORD, SECONDS, Machine, MariaDB, MySQL, Postgres, new, until

PAUSE_ATTEMPTS = 50


class Image(Machine):
    """mount: where the server finds its data."""

    container: Any = None
    mount: str
    words: Callable[[], list[str]]

    @classmethod
    def program_here(cls) -> Path:
        return Path(image_of(cls.kind))

    def environment(self) -> dict[str, str]:
        return {}

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
                environment=self.environment(),
                volumes={str(self.data): {"bind": self.mount, "mode": "rw"}},
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
        self.container.kill(self.goodbye)
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


class PostgresImage(Image, Postgres):
    mount = "/var/lib/postgresql"

    def environment(self) -> dict[str, str]:
        return {"POSTGRES_PASSWORD": PASSWORD, "PGDATA": f"{self.mount}/data"}

    def words(self) -> list[str]:
        return [word for setting in (f"port={self.port}", *self.extra) for word in ("-c", setting)]

    def prepare(self) -> None:
        """The image makes the data itself."""
        self.data.mkdir()
        self.start()
        self.stop()


class MariaDBImage(Image, MariaDB):
    mount = "/var/lib/mysql"

    def environment(self) -> dict[str, str]:
        return {"MYSQL_ROOT_PASSWORD": "tester"}

    def prepare(self) -> None:
        """The image makes the data itself, and root, whom the replication does not know."""
        self.data.mkdir()
        self.run([f"--port={self.port}", "--skip-log-bin"])
        until(self.lets_root_in, f"{self.program} is made", 2 * SECONDS)
        self.make_tester()

    def root(self) -> Any:
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", password="tester")


class MySQLImage(MariaDBImage):
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


KILLABLE: dict[str, tuple[type[Machine], type[Machine]]] = {
    "postgres": (PostgresImage, Postgres),
    "mysql": (MySQLImage, MySQL),
    "mariadb": (MariaDBImage, MariaDB),
}


@contextmanager
def killable(kind: str) -> Iterator[Machine]:
    """A server of the caller's own that runs: from an image, else from a binary of this machine, else a skip."""

    with closing(or_without(kind, lambda: first(kind, [partial(new, each) for each in KILLABLE[kind]]))) as machine:
        machine.start()
        yield machine
