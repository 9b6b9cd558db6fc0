"""All nodes are killed, the newest claims were not yet on a disk, and a new cluster begins without them.

The control, a tag with a failover gap of 0, shows that claims were forgotten: its ids come twice. The other one skips a
gap.
"""

import pytest
from support.clusters.cluster import MEMBERS
from support.clusters.writers import account, its_own_first, wait

SELDOM = ("SET GLOBAL innodb_flush_log_at_trx_commit = 0", "SET GLOBAL innodb_flush_log_at_timeout = 5")
LAZY = {
    "galera": SELDOM,
    "single_primary": (*SELDOM, "SET GLOBAL sync_binlog = 0"),
}
TAGS = {"control": 0, "guarded": None}
"""Tags and their failover gaps."""
SECONDS = 6.0
ROUNDS = 4
"""At most: whether the newest claims were on a disk is a matter of the second in which the servers are killed."""


@pytest.mark.parametrize("kind", list(LAZY))
def test_a_cluster_that_forgot_repeats_ids_only_without_a_guard(kind, request, writers, report):
    cluster = request.getfixturevalue(kind)
    for _ in range(ROUNDS):
        for number in range(MEMBERS):
            cluster.ask(number, *LAZY[kind])
        draw(cluster, writers, "before")
        cluster.kill(*range(MEMBERS))
        writers.close()  # those that live on have seen what is forgotten, and would stop
        cluster.bootstrap()
        draw(cluster, writers, "after")
        if writers.drawn("segment", "control").duplicates:
            break
        writers.close()
    writers.stop()

    control, guarded = writers.drawn("segment", "control"), writers.drawn("segment", "guarded")
    report(f"control, failover gap 0: {control}")
    account({"segment, usual gap": guarded}, report)
    assert control.duplicates
    assert guarded.ids > control.duplicates


def draw(cluster, writers, when: str) -> None:
    for number, (tag, gap) in enumerate(TAGS.items()):
        for offset in range(2):
            urls = [cluster.url(member) for member in its_own_first(number + offset)]
            writers.begin("segment", tag, urls, failover_gap=gap)
    writers.wait_until_all_have_begun()
    wait(SECONDS, f"writers {when}")
