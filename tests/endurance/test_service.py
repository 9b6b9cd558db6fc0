"""Two replicas behind nginx, as docs/service.md configures it, restarted in turn under load: no request fails."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.distinct import distinct
from support.documents.pages import ROOT, blocks
from support.processes.patience import until
from support.processes.prefork import listens
from support.servers.throwaway import free_port
from support.service.load import loaded
from support.service.served import Served

from allocator.database.store import Database
from allocator.service.token_administration import Tokens

CLIENTS, ROUNDS = 16, 3
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


@contextmanager
def nginx(folder: Path, replicas: list[int], token: str) -> Iterator[int]:
    """The port of one with the configuration of the page, before services on these ports. It sends the token."""
    assert NGINX
    (page,) = [block.text for block in blocks(ROOT / "docs" / "service.md") if "upstream ids" in block.text]
    first, second = re.findall(r"127\.0\.0\.1:\d+", page)
    port = free_port()
    page = page.replace(first, f"127.0.0.1:{replicas[0]}").replace(second, f"127.0.0.1:{replicas[1]}")
    page = re.sub(r" *ssl_certificate.*\n", "", page.replace("listen 443 ssl", f"listen 127.0.0.1:{port}"))
    page = page.replace("proxy_pass", f'proxy_set_header Authorization "Bearer {token}"; proxy_pass')
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; user {os.environ.get('USER', 'root')};\n"
        f"events {{}}\nhttp {{ access_log off; {places}\n{page}}}\n"
    )
    with subprocess.Popen([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")]) as process:
        try:
            assert until(lambda: listens(port))
            yield port
        finally:
            process.terminate()


@pytest.mark.skipif(NGINX is None, reason="there is no nginx")
def test_replicas_behind_nginx_restart_in_turn_and_fail_no_request(tmp_path, report):
    url = f"sqlite:///{tmp_path}/ids.db"
    ports = [free_port(), free_port()]
    with closing(Database(url)) as database:
        database.upgrade_schema()
        token, _ = Tokens(database).create("proxy", verbs=("draw", "administer"), tags=("*",))

    def start(port: int) -> Served:
        return Served(url, options=("--port", str(port)), is_open=False)

    replicas = [start(port) for port in ports]
    try:
        with nginx(tmp_path, ports, token) as port, loaded(port, CLIENTS, "order", "invoice") as load:
            for place in [0, 1] * ROUNDS:
                seen = load.requests
                assert until(lambda seen=seen: load.requests > seen + 20 * CLIENTS, 60)  # some connections are kept
                assert replicas[place].stop() == 0
                replicas[place].close()
                replicas[place] = start(ports[place])
    finally:
        for replica in replicas:
            replica.close()

    report(
        f"{2 * ROUNDS} restarts of one of two replicas behind nginx: {load.requests} requests of {CLIENTS} clients, "
        f"{len(load.wrong)} failed, the longest took {load.longest:.3f} s"
    )
    assert distinct(load.ids)
    assert not load.wrong, load.wrong[:5]
