"""Servers that load the application, draw ids, and fork their workers then: gunicorn, Celery; uWSGI, in C.

Each is skipped where it is not installed: `pip install gunicorn celery uwsgi`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
from tqdm import tqdm

REQUESTS, EACH = 60, 150

APPLICATION = """
import json, os, sys, time
if os.environ.get("WITHOUT_DECORATORS"):
    sys.modules["uwsgidecorators"] = None
from allocator import Allocator, AllocatorError, ObjectId
ids = Allocator(os.environ["IDS_URL"], timeout=10)
order = ids.sequence(os.environ["IDS_TAG"])
before = [order.next_id() for _ in range(5)] + [ids.snowflake(), ids.meteor()]
objects = [str(ObjectId()) for _ in range(3)]
if os.environ.get("DEAF"):
    sys.modules["uwsgi"].post_fork_hook = lambda: None

def drawn(first):
    time.sleep(0.01)
    try:
        found = [order.next_id() for _ in range({each})] + [ids.snowflake() for _ in range(20)]
        found += [ids.meteor() for _ in range(20)] + list(order.reserve(3))
    except AllocatorError as error:
        return {{"process": os.getpid(), "ids": [], "error": type(error).__name__}}
    return {{"process": os.getpid(), "ids": found, "before": before, "error": ""}}

def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(drawn(0)).encode()]
"""

CELERY = """
from celery import Celery
from application import drawn
app = Celery("tasks", broker="filesystem://", backend="file://" + os.environ["RESULTS"])
folders = "data_folder_in", "data_folder_out", "control_folder"
app.conf.broker_transport_options = dict.fromkeys(folders, os.environ["RESULTS"])
draw = app.task(drawn, name="draw")
"""


def free_port() -> int:
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@contextmanager
def serving(command: list[str], folder: Path, port: int, **settings: str) -> Iterator[None]:
    (folder / "application.py").write_text(APPLICATION.format(each=EACH))
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=os.environ | settings, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and server.poll() is None:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(10)


def asked(port: int) -> dict:
    for _ in range(100):
        try:
            with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                connection.request("GET", "/")
                return json.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError):
            time.sleep(0.1)
    raise AssertionError("no answer")


def answers(port: int) -> list[dict]:
    with ThreadPoolExecutor(6) as clients:
        return list(tqdm(clients.map(lambda _: asked(port), range(REQUESTS)), total=REQUESTS, unit="request"))


GUNICORN = [
    sys.executable,
    "-m",
    "gunicorn",
    "--preload",
    "--workers",
    "4",
    "--bind",
    "127.0.0.1:{port}",
    "application",
]
UWSGI = [
    "uwsgi", "--master", "--processes", "4", "--http-socket", "127.0.0.1:{port}", "--wsgi-file", "application.py",
]  # fmt: skip

SERVERS = {
    "gunicorn --preload": (GUNICORN, {}),
    "uwsgi": (UWSGI, {}),
    "uwsgi without decorators": (UWSGI, {"WITHOUT_DECORATORS": "1"}),
    "uwsgi without master": ([word for word in UWSGI if word != "--master"], {}),
    "uwsgi --py-call-uwsgi-fork-hooks": (
        [*UWSGI, "--py-call-uwsgi-fork-hooks"],
        {"WITHOUT_DECORATORS": "1", "DEAF": "1"},
    ),
    "uwsgi --lazy-apps": ([*UWSGI, "--lazy-apps"], {}),
}


def run(name: str, folder: Path, url: str, tag: str, **settings: str) -> list[dict]:
    command, more = SERVERS[name]
    program = command[0] if command[0] == sys.executable else str(Path(sys.executable).parent / command[0])
    if (name.startswith("gunicorn") and not find_spec("gunicorn")) or not which(program):
        pytest.skip(f"{name.split(maxsplit=1)[0]} is not installed")
    port = free_port()
    words = [program, *(word.format(port=port) for word in command[1:])]
    with serving(words, folder, port, IDS_URL=url, IDS_TAG=tag, **more, **settings):
        return answers(port)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("name", SERVERS)
def test_workers_forked_after_ids_were_drawn_repeat_none(name, url, tag, tmp_path, report):
    found = run(name, tmp_path, url, tag)
    drawn = [number for answer in found for number in answer["ids"]]
    before = {number for answer in found for number in answer["before"]}
    processes = {answer["process"] for answer in found}
    report(f"{len(drawn)} ids of {len(processes)} processes, {len(drawn) - len(set(drawn))} repeated")

    assert {answer["error"] for answer in found} == {""}
    assert len(processes) > 1
    assert len(set(drawn)) == len(drawn)
    assert before.isdisjoint(drawn)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_control_where_uwsgis_hook_is_taken_away_its_workers_are_refused(url, tag, tmp_path, report):
    found = run("uwsgi without decorators", tmp_path, url, tag, DEAF="1")
    errors = {answer["error"] for answer in found}
    report(f"{REQUESTS} requests, {sorted(errors)}")

    assert errors == {"ForkedUnseen"}


def celery_results(folder: Path, url: str, tag: str) -> list[dict]:
    (folder / "application.py").write_text(APPLICATION.format(each=EACH))
    (folder / "tasks.py").write_text("import os\n" + CELERY)
    results = folder / "results"
    results.mkdir()
    settings = os.environ | {"IDS_URL": url, "IDS_TAG": tag, "RESULTS": str(results)}
    ask = f"from tasks import draw; [draw.delay(number) for number in range({REQUESTS})]"
    subprocess.run([sys.executable, "-c", ask], cwd=folder, env=settings, check=True, timeout=60)
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "prefork", "--concurrency", "4"]
    command += ["--prefetch-multiplier", "1", "--without-gossip", "--without-mingle"]
    with (folder / "log").open("w") as log:
        worker = subprocess.Popen(command, cwd=folder, env=settings, stdout=log, stderr=log, start_new_session=True)
    try:
        done: list[Path] = []
        until = time.monotonic() + 120
        while len(done) < REQUESTS and time.monotonic() < until and worker.poll() is None:
            time.sleep(0.3)
            done = list(results.glob("celery-task-meta-*"))
        return [json.loads(path.read_text())["result"] for path in done]
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
@pytest.mark.filterwarnings("ignore")
def test_celerys_prefork_pool_repeats_none(url, tag, tmp_path, report):
    pytest.importorskip("celery", reason="celery is not installed")
    found = celery_results(tmp_path, url, tag)
    drawn = [number for result in found for number in result["ids"]]
    processes = {result["process"] for result in found}
    report(f"{len(drawn)} ids of {len(processes)} processes, {len(drawn) - len(set(drawn))} repeated")

    assert len(found) == REQUESTS
    assert {result["error"] for result in found} == {""}
    assert len(processes) > 1
    assert len(set(drawn)) == len(drawn)
    assert {number for result in found for number in result["before"]}.isdisjoint(drawn)
