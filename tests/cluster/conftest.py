"""What the runs on clusters share: three servers of a kind for each file, and a report in `reports/`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.clusters.cluster import Cluster, Galera, GroupReplication
from support.clusters.writers import Writers
from support.documents.reports import reporting
from support.servers.available import or_without
from support.servers.databases import with_schema
from support.servers.fleets import claim_tickets

report = reporting("cluster")


def running(make: Callable[[], Cluster], *, claims: bool = False) -> Iterator[Cluster]:
    """claims: tickets are claimed, as the page says where several members write."""
    with or_without("cluster", make) as cluster:
        with_schema(cluster.url(0))
        if claims:
            claim_tickets(cluster.url(0))
        yield cluster


@pytest.fixture(scope="module")
def galera() -> Iterator[Cluster]:
    yield from running(Galera, claims=True)


@pytest.fixture(scope="module")
def single_primary() -> Iterator[Cluster]:
    yield from running(GroupReplication)


@pytest.fixture(scope="module")
def multi_primary() -> Iterator[Cluster]:
    yield from running(lambda: GroupReplication(primaries=3), claims=True)


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    with Writers(tmp_path / "drawn") as found:
        yield found
