"""`examples/fastapi_app` as its README starts it, and orders made over HTTP from many threads at once."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import urllib3
from support.distinct import distinct

import allocator

EXAMPLE = Path(allocator.__file__).parent.parent / "examples" / "fastapi_app"
START_SECONDS = 60.0
LISTENING = re.compile(r"running on (http://[\d.:]+)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example keeps its files."""
    return tmp_path_factory.mktemp("shop")


@pytest.fixture(scope="module")
def shop(folder: Path) -> Iterator[str]:
    """The address of the example."""
    log = folder / "log"
    command = [sys.executable, "-m", "uvicorn", "app:app", "--app-dir", str(EXAMPLE), "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOP_")}
    with log.open("wb") as told:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=told, stderr=told)
    try:
        yield address(process, log)
        process.terminate()
        assert process.wait(START_SECONDS) in {0, -15}, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if found := LISTENING.search(log.read_text()):
            return found.group(1)
        time.sleep(0.05)
    raise RuntimeError(f"the example does not start:\n{log.read_text()}")


def test_orders_with_items_made_concurrently(shop: str, folder: Path):
    pool = urllib3.PoolManager(maxsize=8, retries=False, timeout=60)
    products = ["tea", "cup", "spoon"]

    def make(number: int) -> dict:
        reply = pool.request("POST", f"{shop}/orders", json={"customer": f"c{number}", "products": products})
        assert reply.status == 201, reply.data
        return reply.json()

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(make, range(40)))

    assert distinct(order["id"] for order in made) == 40
    assert distinct(item["id"] for order in made for item in order["items"]) == 120
    assert {len(order["items"]) for order in made} == {3}
    for order in made[:3]:
        assert pool.request("GET", f"{shop}/orders/{order['id']}").json() == order
    with closing(sqlite3.connect(folder / "shop.db")) as rows:
        found = {
            (str(order), str(item))
            for order, item in rows.execute(
                'SELECT "order".id, item.id FROM "order" JOIN item ON order_id = "order".id'
            )
        }
    assert found == {(order["id"], item["id"]) for order in made for item in order["items"]}


def test_what_is_not_in_a_table_and_what_is_refused(shop: str, folder: Path):
    pool = urllib3.PoolManager(retries=False, timeout=60)
    assert [pool.request("POST", f"{shop}/jobs").json() for _ in range(3)] == [{"number": n} for n in "123"]
    assert pool.request("POST", f"{shop}/orders", json={"customer": "nobody", "products": [None]}).status == 422
    assert pool.request("GET", f"{shop}/orders/77").status == 404

    with closing(sqlite3.connect(folder / "shop.db")) as rows:
        assert rows.execute("SELECT count(*) FROM \"order\" WHERE customer = 'nobody'").fetchone() == (0,)
