"""`allocator worker run` with numbers out of every database."""

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


def test_commands_that_run_together_have_numbers_of_their_own_no_more_run_and_others_follow(start: Start, tmp_path):
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

    def runs() -> bool:
        return ended(start(f"again-{len([*tmp_path.iterdir()])}", "true", "--bits", "1"))[0] == 0

    assert until(runs, 60)  # they were given back, and are leased again


@SQLITE
def test_what_does_not_fit_is_refused_and_nothing_runs(start: Start, tmp_path):
    refused = {
        "--seconds 0.5": "seconds must be 1 to 600",
        "--bits 40": "bits must be 1 to 31",
        "--env A=B": "--env must be the name of a variable, got 'A=B'",
    }
    for words, sentence in refused.items():
        code, out, err = ended(start(words, "touch ran", *words.split()))
        assert (code, out, sentence in err) == (125, "", True), (words, err)
    assert list(tmp_path.rglob("ran")) == []
