"""Clusters of three database servers in Docker, of which members are killed, isolated and healed.

Each member has two networks: its cluster's, which can be taken away, and the one over which clients come, which stays.
The server is not the container's first process, so that it can be killed and started while its data stay in memory.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ClassVar, Self
from uuid import uuid4

import pymysql

from support.processes import patience

MEMBERS = 3
PATIENCE = 120.0
PASSWORD = "cluster"
SUBNETS = 200
"""Of private addresses, tried until one is free."""
LIFE = "7200"
"""Seconds after which a container ends by itself, should nobody be left to remove it."""


class Cluster:
    """Three servers of one kind that commit together; a subclass says how they are started and found whole.

    Use it as a context: at the end everything is removed. Members are numbered from 0.
    """

    kind: ClassVar[str]
    image: ClassVar[str]

    def __init__(self) -> None:
        import docker
        from docker.errors import DockerException

        try:
            self._engine = docker.from_env()
        except DockerException as error:
            raise LookupError(f"there is no Docker engine ({error})") from error
        self.name = f"allocator-cluster-{uuid4().hex[:8]}"
        self._containers: list[Any] = []
        self._network, self._subnet = self._new_network()
        try:
            for number in range(MEMBERS):
                self._containers.append(self._new_container(number))
                self._network.connect(self._containers[number], ipv4_address=self.address(number))
            self.ports = [self._port(container) for container in self._containers]
        except DockerException as error:
            self.close()
            raise LookupError(f"no three containers of {self.used_image} can be had ({error})") from error
        except BaseException:
            self.close()
            raise

    def _new_network(self) -> tuple[Any, str]:
        from docker.errors import APIError
        from docker.types import IPAMConfig, IPAMPool

        for third in random.sample(range(1, 255), SUBNETS):
            subnet = f"10.213.{third}"
            pool = IPAMConfig(pool_configs=[IPAMPool(subnet=f"{subnet}.0/24")])
            try:
                return self._engine.networks.create(self.name, ipam=pool, internal=True), subnet
            except APIError:
                continue  # another cluster has it
        raise LookupError("no network is free")

    def _new_container(self, number: int) -> Any:
        return self._engine.containers.run(
            self.used_image,
            ["sleep", LIFE],
            name=f"{self.name}-{number}",
            hostname=f"member{number}",
            init=True,
            detach=True,
            tmpfs={"/var/lib/mysql": ""},
            ports={"3306/tcp": ("127.0.0.1", None)},
        )

    @property
    def used_image(self) -> str:
        return os.environ.get(f"ALLOCATOR_TEST_{self.kind.upper()}_IMAGE", self.image)

    def _port(self, container: Any) -> int:
        container.reload()
        return int(container.ports["3306/tcp"][0]["HostPort"])

    # -- what tests use

    def address(self, number: int) -> str:
        """In the network of the cluster."""
        return f"{self._subnet}.{number + 11}"

    def url(self, number: int, name: str = "ids") -> str:
        return f"mysql+pymysql://root:{PASSWORD}@127.0.0.1:{self.ports[number]}/{name}"

    def kill(self, *numbers: int) -> None:
        """SIGKILL, of several at nearly the same moment; what the server had given to the system stays."""
        for number in numbers:
            self.shell(number, "kill -9 $(cat /run/server)", wait=False)
        for number in numbers:
            self.until(lambda number=number: not self.runs(number), f"member {number} is killed")

    def lose(self, *numbers: int) -> None:
        """For good, with their data, and with whatever the system had yet to send for them."""
        for number in numbers:
            self._containers[number].kill()

    def isolate(self, number: int) -> None:
        """No packet passes between this member and the others; clients reach it as before."""
        self._network.disconnect(self._containers[number])

    def heal(self, number: int) -> None:
        self._network.connect(self._containers[number], ipv4_address=self.address(number))

    def start(self) -> None:
        """All members, of which the first begins the cluster."""
        raise NotImplementedError

    def restart(self, number: int) -> None:
        """One that was killed, into the cluster that goes on without it; returns when it is whole."""
        raise NotImplementedError

    def bootstrap(self) -> int:
        """All were killed: start a new cluster from the member that knows most, which is returned, and the others."""
        raise NotImplementedError

    def is_whole(self) -> bool:
        raise NotImplementedError

    def wait_until_whole(self) -> None:
        self.until(self.is_whole, "the cluster is whole")

    # -- means

    def shell(self, number: int, words: str, *, wait: bool = True) -> str:
        """Run in the container; without waiting, nothing comes back."""
        found = self._containers[number].exec_run(["bash", "-c", words], detach=not wait, environment=self.environment)
        return "" if found.output is None or not wait else found.output.decode(errors="replace")

    @property
    def environment(self) -> dict[str, str]:
        return {f"{self.kind.upper()}_ROOT_PASSWORD": PASSWORD}

    def runs(self, number: int) -> bool:
        return "yes" in self.shell(number, "kill -0 $(cat /run/server) 2>/dev/null && echo yes")

    def launch(self, number: int, arguments: str) -> None:
        entry = f"exec /usr/local/bin/docker-entrypoint.sh {arguments}"
        self.shell(number, f"echo $$ >/run/server; {entry} >>/var/log/server 2>&1", wait=False)

    @contextmanager
    def cursor(self, number: int) -> Iterator[Any]:
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self.ports[number],
            user="root",
            password=PASSWORD,
            connect_timeout=5,
            read_timeout=60,
            autocommit=True,
        )
        try:
            with connection.cursor() as cursor:
                yield cursor
        finally:
            connection.close()

    def ask(self, number: int, *statements: str) -> Sequence[tuple[Any, ...]]:
        """The rows of the last of these statements."""
        with self.cursor(number) as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def answers(self, number: int) -> bool:
        try:
            self.ask(number, "SELECT 1")
        except pymysql.Error:
            return False
        return True

    def until(self, condition: Callable[[], bool], what: str) -> None:
        if not patience.until(condition, PATIENCE, every=0.2):
            tails = [self.shell(number, "tail -n 5 /var/log/server") for number in range(len(self._containers))]
            raise TimeoutError(f"not within {PATIENCE:g} seconds: {what}; {tails}")

    def close(self) -> None:
        for container in self._containers:
            container.remove(force=True, v=True)
        self._network.remove()
        self._engine.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
