"""Generators in other languages, and servers of Python applications: each has its number, and no id comes twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.distinct import distinct
from support.documents.pages import blocks
from support.processes.prefork import Asked, gunicorn, serving
from support.servers.throwaway import free_port

from allocator import inspect_id

ROOT = Path(__file__).parents[2]
EXAMPLE, PAGE = ROOT / "examples" / "worker_numbers", ROOT / "docs" / "workers.md"
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
            running.append(subprocess.Popen([*words, *program, str(COUNT)], cwd=EXAMPLE, stdout=file))
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

    assert [inspect_id(one, layout="cosid").readings[0].fields["machine"] for one in ids] == [0, 1]


def test_each_worker_of_gunicorn_has_its_own_number(tmp_path):
    (tmp_path / "gunicorn.conf.py").write_text(block_of_the_page("post_fork"))
    (tmp_path / "application.py").write_text(WSGI)
    port = free_port()
    with serving(gunicorn("application:app", port), tmp_path, port):
        found = Asked(port).answers_of_several(24)

    numbers = {answer["process"]: answer["worker"] for answer in found}
    assert len(numbers) > 1
    assert distinct(numbers.values())
