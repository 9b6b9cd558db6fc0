"""Clusters of three database servers in Docker, of which members are killed, isolated and healed.

Each member has two networks: its cluster's, which can be taken away, and the one over which clients come, which stays.
The server is not the container's first process, so that it can be killed and started while its data stay in memory.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, ClassVar
from uuid import uuid4

import pymysql

from support.closing import Closing
from support.processes import patience
from support.servers.available import image_of

MEMBERS = 3
PATIENCE = 120.0
PASSWORD = "cluster"
SUBNETS = 200
"""Of private addresses, tried until one is free."""
LIFE = "7200"
"""Seconds after which a container ends by itself, should nobody be left to remove it."""


class Cluster(Closing):
    """Three servers of one kind that commit together; a subclass says how they are started and found whole.

    It runs when it is made; at the end everything is removed. Members are numbered from 0.
    """

    kind: ClassVar[str]

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
            for container in self._containers:
                container.reload()
            self.ports = [int(container.ports["3306/tcp"][0]["HostPort"]) for container in self._containers]
            self.start()
        except DockerException as error:
            self.close()
            raise LookupError(f"no three containers of {image_of(self.kind)} can be had ({error})") from error
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
            image_of(self.kind),
            ["sleep", LIFE],
            name=f"{self.name}-{number}",
            hostname=f"member{number}",
            init=True,
            detach=True,
            tmpfs={"/var/lib/mysql": ""},
            ports={"3306/tcp": ("127.0.0.1", None)},
        )

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

    def ask(self, number: int, *statements: str) -> Sequence[tuple[Any, ...]]:
        """The rows of the last of these statements, each committed for itself."""
        user = {"user": "root", "password": PASSWORD, "host": "127.0.0.1", "port": self.ports[number]}
        connection = pymysql.connect(**user, connect_timeout=5, read_timeout=60, autocommit=True)
        with closing(connection), connection.cursor() as cursor:
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


# -- three MariaDB servers as a Galera cluster


WSREP = (
    "--wsrep-on=ON --wsrep-provider=/usr/lib/libgalera_smm.so --binlog-format=ROW --innodb-autoinc-lock-mode=2 "
    "--wsrep-sst-method=rsync"
)
DATA = "/var/lib/mysql"
RECOVER = (
    f"mariadbd --no-defaults --user=mysql --datadir={DATA} --socket=/tmp/recover.sock {WSREP} "
    "--wsrep-cluster-address=gcomm:// --wsrep-recover --log-error=/tmp/recovered.log 2>/dev/null; "
    "sed -n 's/.*Recovered position: *//p' /tmp/recovered.log | tail -n 1"
)


class Galera(Cluster):
    kind = "mariadb"

    def start(self) -> None:
        self.up(0, "--wsrep-new-cluster")
        for number in range(1, MEMBERS):
            self.up(number)
        self.wait_until_whole()
        self.ask(0, "CREATE DATABASE ids")

    def up(self, number: int, more: str = "") -> None:
        members = ",".join(map(self.address, range(MEMBERS)))
        place = f"--wsrep-node-address={self.address(number)} --wsrep-cluster-address=gcomm://{members}"
        self.launch(number, f"{WSREP} {place} {more}")

    def restart(self, number: int) -> None:
        self.up(number, f"--wsrep-start-position={self.position(number)}")
        self.wait_until_whole()

    def position(self, number: int) -> str:
        """Of a server that was killed, the last write-set in its redo log: `uuid:number`."""
        return self.shell(number, RECOVER).strip()

    def bootstrap(self) -> int:
        positions = [self.position(number) for number in range(MEMBERS)]
        first = max(range(MEMBERS), key=lambda number: int(positions[number].rpartition(":")[2]))
        grant = f"sed -i 's/safe_to_bootstrap: 0/safe_to_bootstrap: 1/' {DATA}/grastate.dat; rm -f {DATA}/gvwstate.dat"
        self.shell(first, grant)
        self.up(first, f"--wsrep-start-position={positions[first]} --wsrep-new-cluster")
        self.until(lambda: self.state(first) == ("1", "Synced"), "the new cluster has begun")
        for number in set(range(MEMBERS)) - {first}:
            self.up(number, f"--wsrep-start-position={positions[number]}")
        self.wait_until_whole()
        return first

    def state(self, number: int) -> tuple[str, str]:
        """How many members it sees, and what it does."""
        names = "'wsrep_cluster_size', 'wsrep_local_state_comment'"
        try:
            found = dict(self.ask(number, f"SHOW GLOBAL STATUS WHERE variable_name IN ({names})"))
        except pymysql.Error:
            return "0", "away"
        return found["wsrep_cluster_size"], found["wsrep_local_state_comment"]

    def is_whole(self) -> bool:
        return all(self.state(number) == (str(MEMBERS), "Synced") for number in range(MEMBERS))


# -- three MySQL servers in Group Replication, with one primary or with three


GROUP = "11111111-2222-3333-4444-555555555555"
PORT = 33061
RECOVERY = "group_replication_recovery"
SERVER = (
    "--gtid-mode=ON --enforce-gtid-consistency=ON --log-bin=binlog --mysqlx=OFF "
    "--plugin-load-add=group_replication.so "
    f"--loose-group-replication-group-name={GROUP} --loose-group-replication-start-on-boot=OFF "
    "--loose-group-replication-recovery-get-public-key=ON"
)
SEVERAL = (
    "--loose-group-replication-single-primary-mode=OFF --loose-group-replication-enforce-update-everywhere-checks=ON"
)
USER = (
    "SET sql_log_bin = 0",
    "CREATE USER replica@'%' IDENTIFIED BY 'replica'",
    "GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO replica@'%'",
    "SET sql_log_bin = 1",
    "RESET BINARY LOGS AND GTIDS",
    f"CHANGE REPLICATION SOURCE TO source_user = 'replica', source_password = 'replica' FOR CHANNEL '{RECOVERY}'",
)
BEGIN = (
    "SET GLOBAL group_replication_bootstrap_group = ON",
    "START GROUP_REPLICATION",
    "SET GLOBAL group_replication_bootstrap_group = OFF",
)


class GroupReplication(Cluster):
    """primaries: 1, or 3 for a group of which every member writes."""

    kind = "mysql"

    def __init__(self, primaries: int = 1) -> None:
        self.primaries = primaries
        super().__init__()

    def start(self) -> None:
        for number in range(MEMBERS):
            self.up(number)
        for number in range(MEMBERS):
            self.until(lambda number=number: self.answers(number), f"member {number} answers")
            self.ask(number, *USER)
        self.begin_with(0)
        self.ask(0, "CREATE DATABASE ids")

    def up(self, number: int) -> None:
        seeds = ",".join(f"{self.address(other)}:{PORT}" for other in range(MEMBERS))
        place = (
            f"--server-id={number + 1} --report-host={self.address(number)} "
            f"--loose-group-replication-local-address={self.address(number)}:{PORT} "
            f"--loose-group-replication-group-seeds={seeds}"
        )
        self.launch(number, f"{SERVER} {place} {'' if self.primaries == 1 else SEVERAL}")

    def begin_with(self, first: int) -> None:
        self.ask(first, *BEGIN)
        for number in set(range(MEMBERS)) - {first}:
            self.ask(number, "START GROUP_REPLICATION")
        self.wait_until_whole()

    def restart(self, number: int) -> None:
        self.up(number)
        self.until(lambda: self.answers(number), f"member {number} answers")
        self.ask(number, "START GROUP_REPLICATION")
        self.wait_until_whole()

    def bootstrap(self) -> int:
        for number in range(MEMBERS):
            self.up(number)
        for number in range(MEMBERS):
            self.until(lambda number=number: self.answers(number), f"member {number} answers")
        first = max(range(MEMBERS), key=self.transactions)
        self.begin_with(first)
        return first

    def transactions(self, number: int) -> int:
        """The last one of the group that this server has."""
        ((executed,),) = self.ask(number, "SELECT @@gtid_executed")
        of_group = next((part for part in executed.replace("\n", "").split(",") if part.startswith(GROUP)), "")
        return int(of_group.rpartition(":")[2].rpartition("-")[2] or 0)

    def primary(self) -> int:
        """The member that writes, of a group with one, as soon as a majority knows it."""
        self.until(lambda: len(self.elected()) == 1, "a majority has one primary")
        (address,) = self.elected()
        return next(number for number in range(MEMBERS) if self.address(number) == address)

    def elected(self) -> set[str]:
        """The addresses of the primaries that a majority sees."""
        views = [self.members(number) for number in range(MEMBERS)]
        return {
            host
            for rows in views
            if sum(state == "ONLINE" for _, state, _ in rows) > MEMBERS // 2
            for host, state, role in rows
            if role == "PRIMARY" and state == "ONLINE"
        }

    def members(self, number: int) -> list[tuple[str, str, str]]:
        columns = "member_host, member_state, member_role"
        try:
            return list(self.ask(number, f"SELECT {columns} FROM performance_schema.replication_group_members"))
        except pymysql.Error:
            return []

    def is_whole(self) -> bool:
        states = [[state for _, state, _ in self.members(number)] for number in range(MEMBERS)]
        return states == [["ONLINE"] * MEMBERS] * MEMBERS
