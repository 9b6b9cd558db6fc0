"""`allocator worker run` with real processes: signals, exit codes, and the end of a number.

The number is a fake: docs/workers.md and examples/worker_numbers run with real ones. Times are compared on the clock
that counts sleep; a lease of 100 seconds leaves a busy machine ten of them to kill a process.
"""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support import kit
from support.processes.children import runs, state, stop
from support.processes.fake_number import now
from support.processes.patience import until
from support.servers.databases import with_schema

from allocator import Allocator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs timers and prctl of Linux")

TESTS = Path(__file__).parents[1]
LEASE = "100"
ENDING = "16"
"""Seconds that are left when it has started: the wrapper kills it 1 second later, or the kernel both 5 after that."""
STUBBORN = ("sh", "-c", 'trap "" TERM; exec "$@"', "sh")
"""Around the wrapper: its command ignores TERM from the start."""
FOREVER = "touch started; while :; do sleep 0.1; done"


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """What the command blocks in this process is blocked no longer; its children would inherit it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Run:
    """The wrapper with a command of the shell, in a folder of its own."""

    def __init__(self, folder: Path, left: str, script: str, *around: str, **settings) -> None:
        self.folder = folder
        words = [*around, sys.executable, "-m", "support.processes.fake_number", LEASE, left, str(folder / "log")]
        paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths}
        words += ["sh", "-c", f"echo $$ > {folder}/pid; {script}"]
        with (folder / "out").open("w") as out, (folder / "err").open("w") as err:  # what outlives it holds no pipe
            self.process = subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=err, **settings)

    def started(self) -> int:
        """The process id of the command, which writes it."""
        assert until((self.folder / "started").exists), self.said()
        return int((self.folder / "pid").read_text())

    def end(self) -> tuple[int, str, str]:
        return self.process.wait(60), *self.said()

    def said(self) -> tuple[str, str]:
        return (self.folder / "out").read_text(), (self.folder / "err").read_text()

    def log(self) -> dict[str, float]:
        """See `support.processes.fake_number`."""
        path = self.folder / "log"
        lines = (line.split() for line in path.read_text().splitlines()) if path.exists() else ()
        return {name: float(at) for name, at in lines}

    def ending(self) -> float:
        """Until when the number may be used; the kernel knows it."""
        assert until(lambda: "until" in self.log()), self.said()
        return self.log()["until"]

    def close(self) -> None:
        """End it all, also what a broken wrapper leaves behind."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        with suppress(ProcessLookupError, FileNotFoundError, ValueError):
            os.killpg(int((self.folder / "pid").read_text()), signal.SIGKILL)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[type[Run]]:
    made: list[Run] = []

    def start(left: str, script: str, *around: str, **settings) -> Run:
        made.append(Run(tmp_path, left, script, *around, **settings))
        return made[-1]

    yield start  # type: ignore[misc]
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def usual_signals() -> Iterator[None]:
    """What runs in the background or under nohup ignores some, which a shell that inherits it cannot trap."""
    ignored = [one for one in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_IGN]
    for one in ignored:
        signal.signal(one, signal.SIG_DFL)
    yield
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)


# -- what the command sees


SCRIPTS = [
    ("echo $WORKER_ID", 0, "5\n"),
    ("exit 7", 7, ""),
    ("kill -9 $$", 137, ""),
    ("kill -1 $$", 129, ""),
]


@pytest.mark.parametrize(("script", "code", "out"), SCRIPTS)
def test_the_command_finds_its_number_in_the_environment_and_its_exit_code_is_kept(run, script, code, out):
    assert run("renewed", script).end() == (code, out, "")


def test_a_command_that_cannot_be_started_is_told_from_one_that_fails(tmp_path):
    """By the exit codes of env, nice and docker run."""
    (tmp_path / "data").write_text("no program")
    with_schema(f"sqlite:///{tmp_path}/ids.db")  # one that is made here is told of
    words = [sys.executable, "-m", "allocator", "worker", "run", "--url", "sqlite:///ids.db", "--space", "x", "--"]
    for command, code, why in ("nowhere", 127, "No such file or directory"), ("./data", 126, "Permission denied"):
        refused = subprocess.run([*words, command], cwd=tmp_path, capture_output=True, text=True, check=False)

        assert (refused.returncode, refused.stdout) == (code, "")
        assert refused.stderr == f"error: cannot start {command}: {why}\n"


MISUSED = {
    "--bits many": "'many' is not a valid integer",
    "--bits 40": "bits must be 1 to 31",
    "--seconds 0.5": "seconds must be 1 to 600",
    "--env A=B": "--env must be the name of a variable, got 'A=B'",
}


@pytest.mark.parametrize(("words", "sentence"), MISUSED.items())
def test_wrong_usage_has_the_exit_code_of_the_wrapper(words, sentence):
    done = kit.run("sqlite://", "worker", "run", "--space", "x", *words.split(), "--", "true")
    assert (done.code, sentence in done.err) == (125, True), done.err


def test_without_a_number_nothing_runs_and_one_of_the_database_is_given_back_at_the_end(tmp_path):
    url, space = f"sqlite:///{tmp_path}/ids.db", ("--space", "x", "--bits", "1")
    words = [sys.executable, "-m", "allocator", "worker", "run", "--url", url, *space, "--", "sh", "-c"]

    def number() -> str:
        done = subprocess.run([*words, "echo $WORKER_ID"], capture_output=True, text=True, check=False)
        return done.stdout

    with Allocator(url) as ids, ids.worker("x", bits=1):
        with ids.worker("x", bits=1):
            done = kit.run(url, "worker", "run", *space, "--", "touch", str(tmp_path / "ran"))
        for _ in range(2):  # given back by the lease, and by the first command
            assert until(lambda: number() == "1\n")

    assert (done.code, "all 2 numbers of space 'x' are held" in done.err) == (125, True), done.err
    assert not (tmp_path / "ran").exists()


def test_the_first_process_of_a_container_is_refused(monkeypatch):
    """The kernel does not kill it by its own timer, so that a stopped one would outlive its number."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    refused = kit.run("sqlite://", "worker", "run", "--space", "x", "--", "true")
    assert refused.code == 125
    assert "start the container with docker run --init" in refused.err


def test_signals_are_passed_on(run):
    traps = "".join(f"trap 'echo {name} >> got' {name}; " for name in ("INT", "HUP", "USR1", "WINCH"))
    one = run("renewed", f"{traps}trap 'echo got; exit 3' TERM; {FOREVER}")
    one.started()
    for name in ("INT", "HUP", "USR1", "WINCH"):
        one.process.send_signal(signal.Signals[f"SIG{name}"])
        assert until(lambda: name in said(one.folder / "got")), name  # noqa: B023 - asked at once
    one.process.send_signal(signal.SIGTERM)

    assert one.end() == (3, "got\n", "")


def said(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_signals_have_their_usual_effect_in_the_command(run):
    """Not blocked, and none ignored that Python ignores."""
    one = run("renewed", f"grep -E 'Sig(Blk|Ign)' /proc/self/status; {FOREVER}")
    os.kill(one.started(), signal.SIGPIPE)
    code, out, _ = one.end()

    assert code == 128 + signal.SIGPIPE
    assert {int(line.split()[1], 16) & (1 << 30) for line in out.splitlines()} == {0}
    assert {int(line.split()[1], 16) & 1 << signal.SIGPIPE - 1 for line in out.splitlines()} == {0}


def test_a_shell_may_be_the_command_and_read_from_the_terminal(run):
    master, slave = pty.openpty()
    one = run("renewed", "read word; echo got $word", stdin=slave, start_new_session=True)
    os.write(master, b"hello\n")

    assert one.end() == (0, "got hello\n", "")
    os.close(master)
    os.close(slave)


# -- what it leaves behind


def test_what_is_left_of_its_group_ends_before_the_number_is_given_back(run):
    one = run("renewed", "sleep 1000 & echo $! > other; exit 4")

    assert one.end()[0] == 4
    assert one.log()["ended"]


# -- the end of the number


def test_a_number_that_ends_asks_the_command_to_stop_while_there_is_time(run):
    one = run("31", f"trap 'echo asked; exit 0' TERM; {FOREVER}")
    code, out, err = one.end()

    assert (code, out) == (125, "asked\n")  # not 0: whoever started it shall start it again
    assert err == "error: number 5 could not be renewed; stopping the command\n"
    assert one.log()["back"] < one.log()["until"]


def test_a_command_that_does_not_stop_is_killed_before_the_number_is_another_ones(run):
    one = run(ENDING, FOREVER, *STUBBORN)
    command = one.started()
    code, _, _ = one.end()

    assert code == 137
    assert not runs(command)
    assert one.log()["back"] < one.log()["until"]


def test_a_number_that_is_lost_kills_the_command_at_once(run):
    one = run("lost", FOREVER, *STUBBORN)

    assert one.end()[0] == 137
    assert one.log()["back"] < one.log()["lost"] + 10


def test_while_the_wrapper_is_stopped_the_kernel_ends_both_in_time(run):
    one = run(ENDING, f"sleep 1000 & echo $! > other; {FOREVER}", *STUBBORN)
    command, other, ends = one.started(), int((one.folder / "other").read_text()), one.ending()
    stop(one.process.pid)

    assert until(lambda: not runs(command) and not runs(other), 30.0)
    assert now() < ends
    assert "back" not in one.log()
    assert one.end()[0] == -signal.SIGKILL


def test_control_a_renewed_number_ends_nothing(run):
    one = run("renewed", FOREVER)
    command = one.started()
    stop(one.process.pid)

    assert not until(lambda: not runs(command), 2.0)


def test_when_the_wrapper_is_killed_the_command_and_its_group_end_with_it(run):
    one = run("renewed", f"sleep 1000 & echo $! > other; {FOREVER}")
    command, other = one.started(), int((one.folder / "other").read_text())
    one.process.kill()

    assert until(lambda: not runs(command) and not runs(other))


def test_when_the_wrapper_is_killed_a_command_that_closed_its_files_ends_with_it(run):
    """As daemons do at their start: the pipe to the wrapper is gone, and with it what ends the group."""
    close = "import os, time; os.closerange(3, 100); open('started', 'x'); time.sleep(1000)"
    one = run("renewed", f'exec {sys.executable} -c "{close}"')
    command = one.started()
    one.process.kill()

    assert until(lambda: not runs(command))


def test_a_terminal_stops_neither_the_wrapper_nor_the_command(run):
    """By Ctrl-Z: nobody would renew the lease of a wrapper that is stopped."""
    one = run("renewed", FOREVER, start_new_session=True)
    command = one.started()
    os.killpg(one.process.pid, signal.SIGTSTP)

    assert not until(lambda: state(one.process.pid) == "T" or state(command) == "T", 1.0)


LATE = """
import time
from allocator.cli.worker_run import KillTimer, clock
timer = KillTimer()
timer.set(clock() - {ago}, 3600.0)
time.sleep({wait})
"""


def late(ago: int, wait: int) -> int:
    return subprocess.run([sys.executable, "-c", LATE.format(ago=ago, wait=wait)], check=False).returncode


def test_a_wrapper_that_was_stopped_after_it_looked_gives_no_time_away():
    """The timer counts from when the clock was read; the machine may have slept since."""
    assert late(4000, wait=30) == -signal.SIGKILL


def test_control_the_timer_waits_for_its_time():
    assert late(0, wait=1) == 0
