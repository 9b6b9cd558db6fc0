"""`examples/fastapi_app` as its README starts it, and orders made over HTTP from many threads at once."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from support.distinct import distinct
from support.documents.pages import blocks
from support.processes.prefork import Asked, celery, gunicorn, results, serving
from support.servers.throwaway import free_port

import allocator
from allocator.cli import main
from allocator.cli.serve import serve
from allocator.service.http_server import DRAIN, GRACE

FASTAPI = Path(allocator.__file__).parent.parent / "examples" / "fastapi_app"


def test_orders_with_items_made_concurrently_and_what_is_refused(tmp_path):
    port, products = free_port(), ["tea", "cup", "spoon"]
    shop = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "uvicorn", "app:app", "--app-dir", str(FASTAPI), "--port", str(port)]
    pool = urllib3.PoolManager(maxsize=8, retries=False, timeout=60)

    def make(number: int) -> dict:
        reply = pool.request("POST", f"{shop}/orders", json={"customer": f"c{number}", "products": products})
        assert reply.status == 201, reply.data
        return reply.json()

    with serving(command, tmp_path, port), ThreadPoolExecutor(8) as threads:
        made = list(threads.map(make, range(40)))
        for order in made[:3]:
            assert pool.request("GET", f"{shop}/orders/{order['id']}").json() == order
        assert [pool.request("POST", f"{shop}/jobs").json() for _ in range(3)] == [{"number": n} for n in "123"]
        refused = pool.request("POST", f"{shop}/orders", json={"customer": "nobody", "products": [None]})
        assert (refused.status, pool.request("GET", f"{shop}/orders/77").status) == (422, 404)

    assert distinct(order["id"] for order in made) == 40
    assert distinct(item["id"] for order in made for item in order["items"]) == 120
    assert {len(order["items"]) for order in made} == {3}
    joined = 'SELECT "order".id, item.id FROM "order" JOIN item ON order_id = "order".id'
    with closing(sqlite3.connect(tmp_path / "shop.db")) as rows:
        found = {(str(order), str(item)) for order, item in rows.execute(joined)}
        assert rows.execute("SELECT count(*) FROM \"order\" WHERE customer = 'nobody'").fetchone() == (0,)
    assert found == {(order["id"], item["id"]) for order in made for item in order["items"]}
    assert "Traceback" not in (tmp_path / "log").read_text()


# -- the example of a Celery worker, with two processes and no server


CELERY = Path(__file__).parents[2] / "examples" / "celery_worker"
TASKS, EACH = 16, 25


def test_tasks_of_two_processes_insert_rows_and_none_twice(tmp_path):
    here = {"SHOP_FOLDER": str(tmp_path), "PYTHONPATH": str(CELERY)}
    ask = [sys.executable, str(CELERY / "ask.py"), str(TASKS)]
    subprocess.run(ask, cwd=tmp_path, env=os.environ | here, check=True, timeout=60)
    found = results(celery("tasks"), tmp_path, tmp_path / "results", TASKS, **here)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as rows:
        stored = dict(rows.execute("SELECT id, process FROM orders").fetchall())
    drawn = [number for numbers in found for number in numbers]
    processes = Counter(stored[number] for number in drawn)

    assert len(found) == TASKS, (tmp_path / "log").read_text()
    assert distinct(drawn) == TASKS * EACH
    assert len(stored) == len(drawn) + 1
    assert stored.keys() - set(drawn) == {1}  # of the parent
    assert len(processes) == 2


# -- the files of `examples/deployment`, by what can be checked without a cluster or a systemd that runs


ROOT = Path(__file__).parents[2]
DEPLOYMENT = ROOT / "examples" / "deployment"


def options_of(command: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Those that our command line reads from `allocator` and these words."""
    monkeypatch.setenv("ALLOCATOR_DATABASE_URL", "sqlite://")
    assert main.get_command(main.make_context("allocator", [*command]), command[0]) is serve
    return serve.make_context("serve", command[1:]).params


def test_kubernetes_waits_for_what_is_running(monkeypatch):
    deployment, _ = yaml.safe_load_all((DEPLOYMENT / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert container["ports"][0]["containerPort"] == options_of(container["args"], monkeypatch)["port"]
    _, pause = container["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] > int(pause) + DRAIN + GRACE


def test_the_unit_of_systemd_starts_our_command_and_waits_for_what_is_running(tmp_path, monkeypatch):
    unit = (DEPLOYMENT / "allocator@.service").read_text()
    program, *command = re.search("^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()

    port = options_of([word.replace("%i", "1") for word in command], monkeypatch)["port"]
    assert program.removesuffix("/bin/allocator") == re.search("python3 -m venv ([^ ]+) ", unit)[1]
    assert f"curl -f --retry 30 --retry-all-errors http://127.0.0.1:{port}/readyz && " in unit
    assert float(re.search("^TimeoutStopSec=(.*)$", unit, re.MULTILINE)[1]) > DRAIN + GRACE
    if not shutil.which("systemd-analyze"):
        return
    (tmp_path / "allocator@.service").write_text(unit.replace(program, sys.executable))
    verify = ["systemd-analyze", "verify", "allocator@1.service"]
    said = subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (said.returncode, said.stderr) == (0, "")


# -- the image and compose.yaml; the CI's job `image` builds and runs them


@pytest.mark.parametrize(("given", "port"), [(None, 8000), ("9000", 9000), ("tcp://10.96.12.7:8000", 8000)])
def test_the_image_asks_for_its_health_where_the_service_listens(given, port, monkeypatch):
    """Kubernetes sets the last value where a Service is called `allocator`; the service ignores it too."""
    monkeypatch.delenv("ALLOCATOR_PORT", raising=False)
    if given:
        monkeypatch.setenv("ALLOCATOR_PORT", given)
    asked: list[str] = []
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", lambda self, url, timeout: asked.append(url))
    (words,) = re.findall(
        r"^HEALTHCHECK .*? CMD (.*\])$", (ROOT / "Dockerfile").read_text().replace("\\\n", ""), re.MULTILINE
    )
    exec(json.loads(words)[2], {})

    assert asked == [f"http://127.0.0.1:{port}/healthz"]


# -- generators in other languages, and servers of Python applications: each has its number, and no id comes twice


WORKERS, PAGE = ROOT / "examples" / "worker_numbers", ROOT / "docs" / "workers.md"
PROGRAMS = {"java": ["java", "Ids.java"], "node": ["node", "ids.mjs"], "go": ["go", "run", "ids.go"]}
COMPILERS = {"java": "javac"}
"""Needed beside the command."""
COUNT = 20_000


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="needs timerfd and prctl of Linux")
@pytest.mark.parametrize("language", PROGRAMS)
def test_two_programs_at_once_make_different_ids(language, tmp_path):
    program = PROGRAMS[language]
    needed = COMPILERS.get(language, program[0])
    if not shutil.which(needed):
        pytest.skip(f"there is no command {needed}")
    url = f"sqlite:///{tmp_path}/ids.db"
    words = [sys.executable, "-m", "allocator", "worker", "run", "--url", url, "--space", "shop", "--"]
    outs = [tmp_path / name for name in ("one", "two")]
    running = []
    for out in outs:
        with out.open("w") as file:
            running.append(subprocess.Popen([*words, *program, str(COUNT)], cwd=WORKERS, stdout=file))
    assert [one.wait(120) for one in running] == [0, 0]
    drawn = [[int(line) for line in out.read_text().split()] for out in outs]

    assert distinct(drawn[0] + drawn[1])
    assert [len(ids) for ids in drawn] == [COUNT, COUNT]
    assert all(ids == sorted(ids) for ids in drawn)


# -- the servers of docs/workers.md

WSGI = """
import json, os

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"process": os.getpid(), "worker": os.environ["WORKER_ID"]}).encode()]
"""


def block_of_the_page(word: str) -> str:
    (found,) = [block.text for block in blocks(PAGE) if block.language == "python" and word in block.text]
    return found


def test_each_process_of_fastapi_makes_ids_of_its_own_number(tmp_path):
    (tmp_path / "shop.py").write_text(block_of_the_page("lifespan"))
    ports = free_port(), free_port()
    words = [sys.executable, "-m", "uvicorn", "shop:app", "--port"]
    with ExitStack() as servers:
        for port in ports:
            servers.enter_context(serving([*words, str(port)], tmp_path, port))
        ids = [Asked(port, "/orders", "POST").answer()["id"] for port in ports]

    assert [int(one) >> 12 & 1023 for one in ids] == [0, 1]


def test_each_worker_of_gunicorn_has_its_own_number(tmp_path):
    (tmp_path / "gunicorn.conf.py").write_text(block_of_the_page("post_fork"))
    (tmp_path / "application.py").write_text(WSGI)
    port = free_port()
    with serving(gunicorn("application:app", port), tmp_path, port):
        found = Asked(port).answers_of_several(24)

    numbers = {answer["process"]: answer["worker"] for answer in found}
    assert len(numbers) > 1
    assert distinct(numbers.values())
