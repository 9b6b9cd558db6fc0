"""`allocator worker run` with numbers out of every database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.kit import SQLITE
from support.processes.patience import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs timers and prctl of Linux")

HOLD = "echo $WORKER_ID > held; echo $$ > pid; while :; do sleep 0.1; done"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(url: str, tag: str, tmp_path: Path) -> Iterator[Start]:
    """Runs a script of the shell under a number, in a folder of its own."""
    made: list[subprocess.Popen[str]] = []

    def run(name: str, script: str, *options: str) -> subprocess.Popen[str]:
        folder = tmp_path / name
        folder.mkdir()
        words = [sys.executable, "-m", "allocator", "worker", "run", "--space", tag, "--url", url, *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        made.append(subprocess.Popen([*words, "--", "sh", "-c", script], cwd=folder, text=True, **pipes))
        return made[-1]

    yield run
    for one in made:
        one.send_signal(signal.SIGCONT)
        one.kill()
        one.communicate()
    for path in tmp_path.rglob("pid"):
        with suppress(ProcessLookupError, ValueError):
            os.killpg(int(path.read_text()), signal.SIGKILL)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def held(folder: Path) -> int:
    path = folder / "held"
    assert until(lambda: path.exists() and path.read_text(), 60)
    return int(path.read_text())


@SQLITE
def test_the_command_runs_under_its_number_and_its_exit_code_is_kept(start: Start):
    first = start("one", "echo $NODE_ID; exit 7", "--env", "NODE_ID")

    assert ended(first) == (7, "0\n", "")


def test_commands_that_run_together_have_numbers_of_their_own_and_no_more_run_than_there_are(start: Start, tmp_path):
    running = [start(str(number), HOLD, "--bits", "1") for number in range(2)]
    numbers = {held(tmp_path / str(number)) for number in range(2)}
    code, out, err = ended(start("more", HOLD, "--bits", "1"))

    assert numbers == {0, 1}
    assert (code, out) == (125, "")
    assert "all 2 numbers of space" in err
    assert not (tmp_path / "more" / "held").exists()
    for one in running:
        one.terminate()
    assert [ended(one) for one in running] == [(143, "", "")] * 2


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
def test_a_number_that_was_given_back_is_leased_again(start: Start, tmp_path):
    def runs() -> bool:
        folders = len(list(tmp_path.iterdir()))
        return ended(start(str(folders), "echo $WORKER_ID", "--bits", "1"))[1] == "0\n"

    first = start("first", HOLD, "--bits", "1")
    assert held(tmp_path / "first") == 0
    assert not runs()
    first.terminate()
    assert ended(first)[0] == 143

    assert until(runs, 60)


@SQLITE
def test_what_does_not_fit_is_refused_and_nothing_runs(start: Start, tmp_path):
    refused = {
        "--seconds 0.5": "seconds must be 1 to 600",
        "--bits 40": "bits must be 1 to 31",
        "--env A=B": "--env must be the name of a variable, got 'A=B'",
    }
    running = {words: start(str(at), "touch ran", *words.split()) for at, words in enumerate(refused)}
    for words, sentence in refused.items():
        code, out, err = ended(running[words])
        assert (code, out, sentence in err) == (125, "", True), (words, err)

    assert list(tmp_path.rglob("ran")) == []
