"""A member that was cut off is forced to go on alone, after the majority went on and was lost for good.

Nothing that a claim can ask has changed there, so ids of the majority come again. The control shows it. What the
documentation orders first, prevents it.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest
from support.clusters.cluster import MEMBERS, PORT, Cluster
from support.distinct import distinct

from allocator import Allocator

TAGS = ("control", "repaired")
BEFORE, LOST = 10, 50
SURVIVOR, OTHERS = 0, (1, 2)
PATIENCE = 60
"""Seconds: whoever writes waits until the others have given the lost member up."""


def bootstrap(cluster: Cluster) -> None:
    """Galera's way; before MariaDB 11.4 it is `wsrep_provider_options = 'pc.bootstrap=yes'`."""
    cluster.ask(SURVIVOR, "SET GLOBAL wsrep_provider_pc_bootstrap = ON")


def force_members(cluster: Cluster) -> None:
    """Group Replication's."""
    address = f"{cluster.address(SURVIVOR)}:{PORT}"
    cluster.ask(SURVIVOR, f"SET GLOBAL group_replication_force_members = '{address}'")


def noticed_by_galera(cluster: Cluster) -> Sequence[tuple[str, ...]]:
    return cluster.ask(
        SURVIVOR,
        "SELECT 1 FROM information_schema.global_status WHERE variable_name = 'wsrep_cluster_status' "
        "AND variable_value = 'non-Primary'",
    )


def noticed_by_group(cluster: Cluster) -> Sequence[tuple[str, ...]]:
    return cluster.ask(
        SURVIVOR,
        "SELECT 1 FROM performance_schema.replication_group_members WHERE member_state = 'UNREACHABLE' "
        f"HAVING COUNT(*) = {MEMBERS - 1}",
    )


WAYS: dict[str, tuple[Callable[[Cluster], None], Callable[[Cluster], Sequence[tuple[str, ...]]]]] = {
    "galera": (bootstrap, noticed_by_galera),
    "multi_primary": (force_members, noticed_by_group),
}


@pytest.mark.parametrize("kind", WAYS)
def test_a_minority_that_is_forced_repeats_ids_unless_it_is_repaired_first(kind, request, report):
    force, noticed = WAYS[kind]
    cluster: Cluster = request.getfixturevalue(kind)
    with ExitStack() as stack:

        def opened(member: int) -> Allocator:
            return stack.enter_context(Allocator(cluster.url(member), timeout=PATIENCE))

        survivor, *others = (opened(member) for member in (SURVIVOR, *OTHERS))
        for ids in (survivor, *others, survivor):  # in turn, so that the rows hold the runs of all
            for tag in TAGS:
                ids.reserve(tag, BEFORE)
        cluster.isolate(SURVIVOR)
        lost = {tag: others[0].reserve(tag, LOST) for tag in TAGS}
        cluster.until(lambda: bool(noticed(cluster)), "the survivor knows that it is alone")
        cluster.lose(*OTHERS)
        cluster.heal(SURVIVOR)
        force(cluster)
        fresh = opened(SURVIVOR)
        control = fresh.reserve("control", LOST)
        fresh.tags.repair("repaired")
        repaired = fresh.reserve("repaired", LOST)

    twice = len({*lost["control"]} & {*control})
    report(f"{kind}, forced: {twice} of {LOST} ids twice, {len({*lost['repaired']} & {*repaired})} after a repair")
    assert distinct([*lost["repaired"], *repaired]) == 2 * LOST
    assert twice == LOST
