"""uWSGI loads the application, draws ids, and forks its workers then, in C; `acceptance/test_examples*` has others."""

import sys
from pathlib import Path
from shutil import which

import pytest
from support.distinct import distinct, none_twice
from support.kit import ON_TWO, SQLITE
from support.processes.prefork import Asked, serving
from support.servers.throwaway import free_port
from tqdm import tqdm

REQUESTS = 60
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

def drawn():
    time.sleep(0.01)
    try:
        found = [order.next_id() for _ in range(150)] + [ids.snowflake() for _ in range(20)]
        found += [ids.meteor() for _ in range(20)] + list(order.reserve(3))
    except AllocatorError as error:
        return {"process": os.getpid(), "ids": [], "error": type(error).__name__}
    return {"process": os.getpid(), "ids": found, "before": before, "error": ""}

def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(drawn()).encode()]
"""
WORDS = ["--processes", "4", "--wsgi-file", "application.py"]
WAYS = {
    "as it comes": (["--master"], {}),
    "without decorators": (["--master"], {"WITHOUT_DECORATORS": "1"}),
    "without master": ([], {}),
    "--py-call-uwsgi-fork-hooks": (
        ["--master", "--py-call-uwsgi-fork-hooks"],
        {"WITHOUT_DECORATORS": "1", "DEAF": "1"},
    ),
    "--lazy-apps": (["--master", "--lazy-apps"], {}),
}
PROGRAM = str(Path(sys.executable).parent / "uwsgi")
pytestmark = pytest.mark.skipif(not which(PROGRAM), reason="uwsgi is not installed (pip install uwsgi)")


def run(way: str, folder: Path, url: str, tag: str, **settings: str) -> list[dict]:
    words, more = WAYS[way]
    (folder / "application.py").write_text(APPLICATION)
    port = free_port()
    command = [PROGRAM, *words, "--http-socket", f"127.0.0.1:{port}", *WORDS]
    with serving(command, folder, port, IDS_URL=url, IDS_TAG=tag, **more, **settings):
        return list(tqdm(Asked(port).answers(REQUESTS), total=REQUESTS, unit="request"))


@ON_TWO
@pytest.mark.parametrize("way", WAYS)
def test_workers_forked_after_ids_were_drawn_repeat_none(way, url, tag, tmp_path, report):
    found = run(way, tmp_path, url, tag)
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
    found = run("without decorators", tmp_path, url, tag, DEAF="1")
    errors = {answer["error"] for answer in found}
    report(f"{REQUESTS} requests, {sorted(errors)}")
    assert errors == {"ForkedUnseen"}
