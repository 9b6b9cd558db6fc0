"""Three MySQL servers in Group Replication, with one primary or with three."""

from __future__ import annotations

import pymysql

from support.clusters.cluster import MEMBERS, Cluster

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

    kind, image = "mysql", "mysql:9"

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
        found: set[str] = set()

        def is_known() -> bool:
            found.clear()
            found.update(self.elected())
            return len(found) == 1

        self.until(is_known, "a majority has one primary")
        return next(number for number in range(MEMBERS) if self.address(number) in found)

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
