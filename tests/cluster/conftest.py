"""What the runs on clusters share: three servers of a kind for each file, and a report in `reports/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.cluster import Cluster
from rig.databases import with_schema
from rig.galera import Galera
from rig.grouped import GroupReplication
from rig.reports import reporting
from rig.trouble import skipping
from rig.writers import Writers

report = reporting("cluster")


def running(make: Callable[[], Cluster]) -> Iterator[Cluster]:
    with skipping(make) as cluster:
        with_schema(cluster.url(0))
        yield cluster


@pytest.fixture(scope="module")
def galera() -> Iterator[Cluster]:
    yield from running(Galera)


@pytest.fixture(scope="module")
def single_primary() -> Iterator[Cluster]:
    yield from running(GroupReplication)


@pytest.fixture(scope="module")
def multi_primary() -> Iterator[Cluster]:
    yield from running(lambda: GroupReplication(primaries=3))


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    with Writers(tmp_path / "drawn") as found:
        yield found
