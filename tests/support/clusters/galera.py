"""Three MariaDB servers as a Galera cluster."""

from __future__ import annotations

import pymysql

from support.clusters.cluster import MEMBERS, Cluster

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
    kind, image = "mariadb", "mariadb:11"

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
