"""PgBouncer in transaction mode before a PostgreSQL of the tests, where its binary is on the machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import make_url

from support.servers.throwaway import free_port, start, stop, unprivileged, wait_until

CONNECTIONS = 2
"""To the server: fewer than clients, so that each is used by many."""

SETTINGS = """
[databases]
{name} = host={host} port={server_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = {connections}
"""


@contextmanager
def pooled(url: str) -> Iterator[str]:
    """The URL of a database through the pooler. Raises `LookupError` where there is no PgBouncer."""
    binary = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if binary is None:
        raise LookupError("no pgbouncer on this machine")
    server, folder, port = make_url(url), Path(tempfile.mkdtemp(prefix="allocator-pooler-")), free_port()
    as_user = unprivileged(folder)
    (folder / "users").write_text(f'"{server.username}" "{server.password}"\n')
    (folder / "settings").write_text(
        SETTINGS.format(
            name=server.database,
            host=server.host,
            server_port=server.port,
            port=port,
            folder=folder,
            connections=CONNECTIONS,
        )
    )
    place = server.set(host="127.0.0.1", port=port)
    process = start(as_user, [binary, folder / "settings"], folder)
    wait_until(lambda: answers(place.set(drivername="postgresql").render_as_string(False)), process, folder)
    try:
        yield place.render_as_string(hide_password=False)
    finally:
        stop(process, folder)


def answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
