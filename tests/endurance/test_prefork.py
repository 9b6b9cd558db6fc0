"""Servers that load the application, draw ids, and fork their workers then: gunicorn, Celery; uWSGI, in C.

Each is skipped where it is not installed: `pip install gunicorn celery uwsgi`.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
from support.distinct import distinct, none_twice
from support.kit import SQLITE
from support.processes.prefork import Asked, celery, gunicorn, results, serving
from support.servers.throwaway import free_port
from tqdm import tqdm

REQUESTS, EACH = 60, 150

APPLICATION = """
import json, os, sys, time
if os.environ.get("WITHOUT_DECORATORS"):
    sys.modules["uwsgidecorators"] = None
from allocator import Allocator, ObjectId
from allocator.errors import AllocatorError
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


UWSGI = [
    "uwsgi", "--master", "--processes", "4", "--http-socket", "127.0.0.1:0", "--wsgi-file", "application.py",
]  # fmt: skip

SERVERS = {
    "gunicorn --preload": (gunicorn("application", 0, 4), {}),
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
    words = [program, *(word.replace(":0", f":{port}") for word in command[1:])]
    write_application(folder)
    with serving(words, folder, port, IDS_URL=url, IDS_TAG=tag, **more, **settings):
        return list(tqdm(Asked(port).answers(REQUESTS), total=REQUESTS, unit="request"))


def write_application(folder: Path) -> None:
    (folder / "application.py").write_text(APPLICATION.format(each=EACH))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("name", SERVERS)
def test_workers_forked_after_ids_were_drawn_repeat_none(name, url, tag, tmp_path, report):
    judge(run(name, tmp_path, url, tag), report)


def judge(found: list[dict], report: Callable[[str], None]) -> None:
    drawn = [number for answer in found for number in answer["ids"]]
    processes = {answer["process"] for answer in found}
    report(f"{len(drawn)} ids of {len(processes)} processes, {len(drawn) - len(set(drawn))} repeated")

    assert len(found) == REQUESTS
    assert {answer["error"] for answer in found} == {""}
    assert len(processes) > 1
    assert distinct(drawn)
    none_twice({number for answer in found for number in answer["before"]}.intersection(drawn))


@SQLITE
def test_control_where_uwsgis_hook_is_taken_away_its_workers_are_refused(url, tag, tmp_path, report):
    found = run("uwsgi without decorators", tmp_path, url, tag, DEAF="1")
    errors = {answer["error"] for answer in found}
    report(f"{REQUESTS} requests, {sorted(errors)}")

    assert errors == {"ForkedUnseen"}


def celery_results(folder: Path, url: str, tag: str) -> list[dict]:
    write_application(folder)
    (folder / "tasks.py").write_text("import os\n" + CELERY)
    kept = folder / "results"
    kept.mkdir()
    settings = {"IDS_URL": url, "IDS_TAG": tag, "RESULTS": str(kept)}
    ask = f"from tasks import draw; [draw.delay(number) for number in range({REQUESTS})]"
    subprocess.run([sys.executable, "-c", ask], cwd=folder, env=os.environ | settings, check=True, timeout=60)
    return results(celery("tasks", 4), folder, kept, REQUESTS, **settings)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
@pytest.mark.filterwarnings("ignore")
def test_celerys_prefork_pool_repeats_none(url, tag, tmp_path, report):
    pytest.importorskip("celery", reason="celery is not installed")
    judge(celery_results(tmp_path, url, tag), report)
