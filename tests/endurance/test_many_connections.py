"""More idle connections than the service takes, beside a client that draws."""

import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.distinct import distinct
from support.processes.patience import until
from support.service.load import Load, loaded
from support.service.served import Served

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descriptors are counted in /proc")

IDLE, TOGETHER, HELD_SECONDS = 12_000, 250, 15
SHELL, LARGE = 4096, 65_536
"""The limit of open files, as a shell or a unit may set it."""
SPARE = 500
AT_ONCE = 2.0
LIMITED = """
import resource
from allocator.service import http_server
most = min({limit}, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
{change}
from allocator.cli import main
main()
"""
TAKES_ALL = "http_server.allow_many_files = lambda: 10_000"

NEW_TAGS = tuple(f"tag-{number}" for number in range(100_000))
"""Of which nearly each request takes another one, and so the database."""


def descriptors_of(service: Served) -> int:
    return sum(1 for _ in Path(f"/proc/{service.process.pid}/fd").iterdir())


@pytest.fixture
def many_files() -> Iterator[None]:
    """For the other ends of the connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < IDLE + SPARE:
        pytest.skip(f"this process may open {before[1]} files, and {IDLE} clients need one each")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def beside_idle(service: Served) -> tuple[Load, int]:
    """A client that was there first, on one connection; and the descriptors of the service beside the idle ones."""
    with ExitStack() as opened, loaded(service.port, 1, *NEW_TAGS) as load:
        assert until(lambda: load.requests)
        end = time.monotonic() + HELD_SECONDS
        for number in range(IDLE):
            idle = opened.enter_context(socket.socket())
            idle.setblocking(False)
            idle.connect_ex(("127.0.0.1", service.port))  # beyond the backlog it stays under way
            if number % TOGETHER == 0:
                time.sleep(0.05)
        time.sleep(max(0.0, end - time.monotonic()))
        load.over.set()
        return load, descriptors_of(service)


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("limit", [SHELL, LARGE])
def test_idle_connections_of_others_leave_files_for_the_database_and_hold_up_no_client(tmp_path, limit, report):
    limited = ("-c", LIMITED.format(limit=limit, change=""))
    most = min(limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    with Served(f"sqlite:///{tmp_path}/ids.db", program=limited) as service:
        beside, held = beside_idle(service)
        taken_again = until(lambda: descriptors_of(service) < SPARE, 60)
        began = time.monotonic()
        fresh = service.post("/v1/tags/order/ids")
        waited = time.monotonic() - began
        code, log = service.stop(), service.log()
    report(
        f"{IDLE:,} idle connections, at most {most:,} files: {held:,} held; beside them {beside.requests:,} requests "
        f"of new tags, the longest {beside.longest:.3f} s, {len(beside.wrong)} failed; then an id in {waited:.3f} s"
    )

    assert not beside.wrong, beside.wrong[:3]
    assert distinct(beside.ids)
    assert beside.requests > HELD_SECONDS
    assert beside.longest < AT_ONCE
    assert min(10_000, most * 3 // 4) <= held < most
    assert taken_again
    assert fresh.status == 200
    assert code == 0
    assert "Traceback" not in log


@pytest.mark.usefixtures("many_files")
def test_control_a_service_that_takes_every_connection_has_no_file_left_for_its_database(tmp_path):
    limited = ("-c", LIMITED.format(limit=SHELL, change=TAKES_ALL))
    with Served(f"sqlite:///{tmp_path}/ids.db", program=limited) as service:
        beside, _ = beside_idle(service)

    assert beside.wrong
