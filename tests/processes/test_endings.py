"""The end of the interpreter, and systems that give no thread: ids or one clear error, never a hang."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.distinct import distinct
from support.kit import SQLITE, python

from allocator import Allocator, AsyncAllocator

ENDING = """
import atexit, os, sys, threading, time
from allocator import Allocator, ObjectId
path, *how = sys.argv[1:]
ids = Allocator("sqlite:///" + path, step=20, max_step=20, timeout=15)
out = os.open(path + ".ids", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

def say(word):
    os.write(out, f"{word}\\n".encode())

def draw(count):
    for _ in range(count):
        say(ids.next_id("order"))

class Late:
    def __init__(self):
        self.ids, self.say, self.me = ids, say, self

    def __del__(self):
        for draw in (self.drain, lambda: self.ids.reserve("order", 2)):
            try:
                draw()
            except Exception as error:
                self.say(f"{type(error).__name__}: {error}")
        ObjectId()
        self.say("ended")

    def drain(self):
        for _ in range(200):
            self.say(self.ids.next_id("order"))

draw(5)
if "atexit" in how:
    atexit.register(draw, 200)
if "destructor" in how:
    late = Late()
if "blind" in how:
    sys.is_finalizing = bool
if "daemon" in how:
    for _ in range(2):
        threading.Thread(target=draw, args=(10**9,), daemon=True).start()
    time.sleep(0.05)
"""

REFUSED = (
    "AllocatorClosed: no ids can be drawn during interpreter shutdown; draw them earlier, for example in an atexit "
    "function"
)


def prepare(path: Path) -> None:
    """Make the database, which is told on stderr."""
    with Allocator(f"sqlite:///{path}") as ids:
        ids.create_tables()


def ended(tmp_path: Path, *how: str) -> tuple[list[int], list[str]]:
    """The ids that were drawn, and what else was said."""
    path = tmp_path / "ids.db"
    prepare(path)
    said = python(ENDING, path, *how)
    lines = Path(f"{path}.ids").read_text().split("\n")[:-1]

    assert said == (0, "", "")
    return [int(line) for line in lines if line.isdecimal()], [line for line in lines if not line.isdecimal()]


@pytest.mark.parametrize("others", [[], ["daemon"]], ids=["alone", "daemons"])
def test_ids_can_be_drawn_at_exit_and_are_refused_once_the_interpreter_ends(tmp_path, others):
    drawn, said = ended(tmp_path, "atexit", "destructor", *others)

    assert distinct(drawn) >= 205
    assert said == [REFUSED, REFUSED, "ended"] or (others and not said)  # which may keep it from being destroyed


def test_control_without_looking_a_destructor_waits_for_threads_that_are_gone(tmp_path):
    path = tmp_path / "ids.db.ids"
    process = subprocess.Popen([sys.executable, "-c", ENDING, str(tmp_path / "ids.db"), "destructor", "blind"])
    until = time.monotonic() + 60
    while time.monotonic() < until and not (path.exists() and len(path.read_text().split()) >= 20):
        time.sleep(0.05)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    process.kill()
    process.wait()

    assert "ended" not in path.read_text()


ADMINISTRATION = """
import os, sys
from allocator import Allocator
ids = Allocator(sys.argv[1])
ids.tags.create("order")

class Late:
    def __init__(self):
        self.ids, self.say, self.me = ids, os.write, self

    def __del__(self):
        self.say(1, self.ids.tags.list()[0].name.encode())

late = Late()
"""


def test_administration_in_the_end_waits_for_no_thread(tmp_path):
    """A new one would never say that it has begun."""
    prepare(tmp_path / "ids.db")

    assert python(ADMINISTRATION, f"sqlite:///{tmp_path}/ids.db") == (0, "order", "")


@pytest.fixture(params=[0, 1])
def no_threads(request, monkeypatch) -> None:
    """No thread can be had, from the first or from the second on."""
    started, start = [], threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "allocator" and len(started) >= request.param:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


@SQLITE
def test_claims_are_made_where_no_thread_can_be_had(url, tag, no_threads):
    with Allocator(url, step=10, max_step=10) as ids:
        drawn = [*ids.next_ids(tag, 95), *ids.reserve(tag, 5), *(ids.next_id(tag) for _ in range(50))]
        tickets = [ids.ticket(tag), ids.ticket(tag)]
        others = [ids.meteor(), ids.snowflake()]

    assert distinct(drawn) == 150
    assert distinct(tickets + others) == 4


@SQLITE
def test_the_asyncio_face_needs_no_thread_either(url, tag, no_threads):
    async def draw() -> list[int]:
        async with AsyncAllocator(url, step=10, max_step=10) as ids:
            return sum(await asyncio.gather(*(ids.next_ids(tag, 20) for _ in range(5))), [])

    assert distinct(asyncio.run(draw())) == 100
