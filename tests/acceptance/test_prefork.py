"""What forks its workers after ids were drawn needs no setting: gunicorn with Flask, and Celery."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.distinct import distinct
from support.processes.prefork import Asked, celery, gunicorn, results, serving
from support.servers.throwaway import free_port

APPLICATION = """
import os, time
from flask import Flask
from allocator.integrations.flask import Allocation, current_allocator

app = Flask(__name__)
app.config["ALLOCATOR_DATABASE_URL"] = "sqlite:///ids.db"
app.config["ALLOCATOR_OPTIONS"] = {"timeout": 10}
Allocation(app)
with app.app_context():
    before = current_allocator.next_ids("order", 5) + [current_allocator.snowflake()]

@app.get("/")
def draw():
    return {"ids": drawn(), "before": before, "process": os.getpid()}

def drawn():
    time.sleep(0.02)  # so that the other process gets something to do as well
    found = current_allocator.next_ids("order", 20) + [current_allocator.next_id("order")]
    return found + [current_allocator.snowflake(), current_allocator.meteor()]
"""

TASKS = """
import os, time
from celery import Celery
from application import app as web, before, drawn

app = Celery("tasks", broker="filesystem://", backend="file://" + os.path.abspath("results"))
folders = "data_folder_in", "data_folder_out", "control_folder"
app.conf.broker_transport_options = dict.fromkeys(folders, os.path.abspath("queue"))

@app.task
def draw():
    time.sleep(0.1)  # so that both processes have some
    with web.app_context():
        return {"ids": drawn(), "before": before, "process": os.getpid()}
"""

TIMES = 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An application that draws ids while it is loaded."""
    pytest.importorskip("flask")
    (tmp_path / "application.py").write_text(APPLICATION)
    return tmp_path


def check(found: list[dict], log: Path) -> None:
    drawn = [number for answer in found for number in answer["ids"]]
    before = {number for answer in found for number in answer["before"]}

    assert len(found) >= TIMES, log.read_text()
    assert len({answer["process"] for answer in found}) == 2
    assert distinct(drawn) == 23 * len(found)
    assert before.isdisjoint(drawn)


def test_gunicorn_preload_with_flask(folder):
    port = free_port()
    with serving(gunicorn("application:app", port), folder, port):
        found = Asked(port).answers_of_several(TIMES)

    check(found, folder / "log")


def test_celerys_prefork_pool(folder):
    pytest.importorskip("celery")
    (folder / "tasks.py").write_text(TASKS)
    for name in ("results", "queue"):
        (folder / name).mkdir()
    ask = f"from tasks import draw; [draw.delay() for _ in range({TIMES})]"
    subprocess.run([sys.executable, "-c", ask], cwd=folder, env=os.environ, check=True, timeout=60)

    check(results(celery("tasks"), folder, folder / "results", TIMES), folder / "log")
