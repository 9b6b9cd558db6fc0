"""More idle connections than the service takes, beside a client that draws; and hostile bytes on 20,000 connections."""

import asyncio
import random
import re
import resource
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from support.distinct import none_twice
from support.processes.patience import until
from support.service.load import Load
from support.service.served import Served
from tqdm import tqdm

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

STREAMS, ABREAST, PATIENCE = 20_000, 32, 20.0
NEW_TAGS = tuple(f"tag-{number}" for number in range(100_000))
"""Of which nearly each request takes another one, and so the database."""


def descriptors_of(service: Served) -> int:
    return sum(1 for _ in Path(f"/proc/{service.process.pid}/fd").iterdir())


# -- idle connections


@pytest.fixture
def many_files() -> Iterator[None]:
    """For the other ends of the connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < IDLE + SPARE:
        pytest.skip(f"this process may open {before[1]} files, and {IDLE} clients need one each")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def beside_idle(service: Served) -> tuple[Load, int]:
    """A client that was there first, on one connection; and the descriptors of the service beside the idle ones."""
    load, idle = Load(service.port, 1, NEW_TAGS, visit=range(10**6, 10**6 + 1)), list[socket.socket]()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run())
            end = time.monotonic() + HELD_SECONDS
            while len(idle) < IDLE:
                for _ in range(TOGETHER):
                    idle.append(socket.socket())
                    idle[-1].setblocking(False)
                    idle[-1].connect_ex(("127.0.0.1", service.port))  # beyond the backlog it stays under way
                await asyncio.sleep(0.05)
            await asyncio.sleep(end - time.monotonic())
            load.over = True
        return load, descriptors_of(service)
    finally:
        for one in idle:
            one.close()


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("limit", [SHELL, LARGE])
def test_idle_connections_of_others_leave_files_for_the_database_and_hold_up_no_client(tmp_path, limit, report):
    limited = ("-c", LIMITED.format(limit=limit, change=""))
    most = min(limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    with Served(f"sqlite:///{tmp_path}/ids.db", program=limited) as service:
        beside, held = asyncio.run(beside_idle(service))
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
    none_twice(beside.duplicates())
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
        beside, _ = asyncio.run(beside_idle(service))

    assert beside.wrong


# -- hostile bytes

BODY = b'{"step": 5, "limit": "9007199254740991", "failover_gap": "auto"}'
PUT = b"PUT /v1/tags/hostile HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
WELL_MADE = (
    b"POST /v1/tags/order/ids?count=2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
    PUT + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
    PUT + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n",
    b"GET /v1/inspect/5016762319896585?layout=meteor HTTP/1.1\r\nHost: localhost\r\n\r\n",
)
LENGTHS = (b"-1", b"+5", b"0x10", b"5, 6", b"99999999999999999999", b"", b"1e3", "٣".encode())
ODD = (b"\0", b"\r", b"\n", b"\r\n\r\n", b"%00", b"%2e%2e/", b"\xff\xfe", b" ", b"\t", b":", b"?", b"#", b"[" * 50)
BODIES = (b"[" * 20_000, b"9" * 5000, b'{"step":' * 500, b'"\xff"', b"1" * 65_537, b"NaN")


def spliced(rnd: random.Random, made: bytes) -> bytes:
    for _ in range(rnd.randrange(1, 6)):
        at = rnd.randrange(len(made))
        made = made[:at] + rnd.choice([*ODD, rnd.randbytes(1)]) + made[at + rnd.randrange(3) :]
    return made


HOSTILE: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    lambda rnd, made: rnd.randbytes(rnd.randrange(1, 3000)),
    lambda rnd, made: made[: rnd.randrange(1, len(made))],
    lambda rnd, made: PUT + b"Content-Length: %b\r\n\r\n" % rnd.choice(LENGTHS) + BODY,
    lambda rnd, made: PUT + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5;%b\r\n" % rnd.choice(ODD) + made,
    lambda rnd, made: made.replace(b"\r\n\r\n", b"\r\nX: %b\r\n\r\n" % (b"a" * rnd.randrange(30_000)), 1),
    lambda rnd, made: PUT + b"Content-Length: %d\r\n\r\n" % len(body := rnd.choice(BODIES)) + body,
    spliced,
    lambda rnd, made: spliced(rnd, made) + rnd.choice(WELL_MADE),
)
"""Bytes that no client of ours sends, made of a request."""


def answered(port: int, stream: bytes) -> bytes:
    """What comes until the service ends the connection, which it may do before the end of what came."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        try:
            connection.sendall(stream)
            connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(65_536):
                found += more
        except TimeoutError:
            raise
        except OSError:  # it has answered before the end of what came
            pass
    return found


def left(port: int, stream: bytes) -> bytes:
    """As `answered`, for whom ends the connection by a reset and reads nothing."""
    with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(stream)
    return b""


def test_hostile_streams_cost_neither_the_service_nor_other_clients_anything(tmp_path, report):
    """Beside what unit/service/test_requests.py says of fields that cannot be read."""
    rnd, statuses = random.Random(7), Counter[int]()
    streams = [rnd.choice(HOSTILE)(rnd, rnd.choice(WELL_MADE)) for _ in range(STREAMS)]
    ways = [left if number % 4 == 3 else answered for number in range(STREAMS)]
    with Served(f"sqlite:///{tmp_path}/ids.db") as service, ThreadPoolExecutor(ABREAST + 1) as pool:
        load = Load(service.port, 8, ("order", "invoice"))
        beside = pool.submit(asyncio.run, load.run())
        done = pool.map(lambda way, stream: way(service.port, stream), ways, streams)
        for answer in tqdm(done, desc="streams", total=STREAMS, unit="stream"):
            statuses.update(map(int, re.findall(rb"HTTP/1\.1 (\d+)", answer)))
        load.over = True
        beside.result(PATIENCE + 60)
        closed = until(lambda: descriptors_of(service) < SPARE, 60)
        ready, code, log = service.get("/readyz").status, service.stop(), service.log()
    report(
        f"{STREAMS:,} hostile streams: {', '.join(f'{count:,} of {one}' for one, count in sorted(statuses.items()))}"
    )
    assert not load.wrong, load.wrong[:3]
    none_twice(load.duplicates())
    assert load.requests > 100
    assert max(statuses) < 500
    assert statuses[400] > STREAMS / 20
    assert closed
    assert (ready, code) == (200, 0)
    assert "Traceback" not in log
