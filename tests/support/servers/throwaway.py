"""Servers from binaries of this machine, each in a temporary folder."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.processes import patience

SECONDS = 60
"""For a server to start or to stop."""
POSTGRES_BIN = "ALLOCATOR_TEST_POSTGRES_BIN"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def unprivileged(folder: Path) -> dict[str, Any]:
    """PostgreSQL and PgBouncer refuse to run as root."""
    if os.getuid() != 0:
        return {}
    shutil.chown(folder, "nobody")
    return {"user": "nobody", "group": "nogroup", "extra_groups": []}


def started(command: list[object], folder: Path, answers: Callable[[], bool]) -> subprocess.Popen[bytes]:
    """A server that answers. Raises LookupError where it does not."""
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*map(str, command)], stdout=log, stderr=log, cwd=folder, start_new_session=True, **unprivileged(folder)
        )
    if not patience.until(answers, SECONDS, every=0.1, hopeless=lambda: server.poll() is not None):
        last = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)
        raise LookupError(f"the throw-away server did not start: {last}")
    return server
