"""The service as an operator starts, kills and stops it, before real databases."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from support.distinct import distinct
from support.faults.wire import Wire
from support.processes.patience import until
from support.service.served import Served

from allocator import Allocator

SERVERS = ("postgres", pytest.param("mysql", marks=pytest.mark.nightly))
"""One of each driver."""


@pytest.fixture(autouse=True, scope="module")
def heeded() -> Iterator[None]:
    """What these tests ignore, as under nohup, the services would ignore too."""
    ignored = [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_tells_each_busy_connection_and_cuts_none(tmp_path, number):
    """Each of them would send one more request. SIGHUP comes when a terminal is closed."""
    busy, last = set[HTTPConnection](), []

    def ask_until_told() -> None:
        with closing(HTTPConnection("127.0.0.1", service.port, timeout=30)) as connection:
            while True:
                connection.request("POST", "/v1/tags/order/ids")
                with connection.getresponse() as answer:
                    answer.read()
                if answer.status != 200 or answer.getheader("connection"):
                    break
                busy.add(connection)
        last.append((answer.status, answer.getheader("connection")))

    with Served(f"sqlite:///{tmp_path}/ids.db") as service:
        with ThreadPoolExecutor(16) as pool:
            asking = [pool.submit(ask_until_told) for _ in range(16)]
            assert until(lambda: len(busy) == 16)
            code = service.stop(number)
            for one in asking:
                one.result(30)
        log = service.log()

    assert (code, last) == (0, [(200, "close")] * 16), log
    assert "Traceback" not in log


@pytest.mark.parametrize("kind", SERVERS)
def test_ids_and_readiness_while_the_database_is_away(shared_database, kind, tag):
    with Allocator(shared_database(kind)) as ids:
        ids.tags.create(tag, step=1000)
    with Wire(shared_database(kind)) as wire, Served(wire.url, options=("--timeout", "1")) as service:
        path = f"/v1/tags/{tag}/ids"
        first = service.post(path).ids
        wire.refuse()
        drawn = [number for _ in range(30) for number in service.post(path).ids]
        assert service.get("/healthz").status == 200
        refused = service.post(f"{path}?count=1000")
        drawn += service.post(path).ids  # a batch that cannot be had leaves memory as it was
        assert (refused.status, refused.json["error"]) == (503, "DatabaseUnavailable")
        assert refused.headers["Retry-After"] == "1"
        assert wire.url.partition("@")[2][:12] not in refused.body.decode()
        assert until(lambda: "cannot read the tokens" in service.log())
        assert service.get("/readyz").status == 200  # what is in memory lasts
        assert service.post(f"{path}?count=968").status == 200
        assert service.post(path).status == 503
        assert until(lambda: service.get("/readyz").status == 503)
        assert tag not in service.get("/readyz").body.decode()
        wire.accept()
        began = time.monotonic()
        assert until(lambda: service.get("/readyz").status == 200)
        ready_again = time.monotonic() - began
        drawn += [number for _ in range(30) for number in service.post(path).ids]

    assert distinct([*first, *drawn]) == 62
    assert ready_again < 5  # the figure itself is measured by the long run


def test_a_service_that_starts_without_its_database_gets_ready_when_it_is_there(shared_database, tag):
    with Wire(shared_database("postgres")) as wire:
        wire.refuse()
        with Served(wire.url, options=("--timeout", "1"), ready=False, is_open=False) as service:
            assert service.get("/readyz").status == 503
            assert service.post(f"/v1/tags/{tag}/ids").status == 503
            assert "cannot check yet whether a token exists" in service.log()
            wire.accept()
            assert until(lambda: service.get("/readyz").status == 200)
            refused = service.post(f"/v1/tags/{tag}/ids")
            assert refused.status == 401
            assert refused.json["detail"].startswith("no token exists; create one with: allocator tokens")


def test_what_a_start_finds_missing_or_taken_is_said(new_database, tmp_path):
    """As JSON, as all of the log: it explains why a container starts again and again."""
    (tmp_path / "none.pem").write_text("none")
    empty, other = new_database("postgres"), f"sqlite:///{tmp_path}/other.db"
    with Served(f"sqlite:///{tmp_path}/ids.db") as service:
        taken = f"cannot listen on 127.0.0.1:{service.port}: Address already in use"
        for options, error, sentence in (
            (["--port", "0", "--url", empty], "SchemaOutOfDate", "run: allocator db upgrade"),
            (["--port", str(service.port), "--url", other, "--open"], "InvalidSetting", taken),
            (
                ["--port", "0", "--url", other, "--open", "--certificate", "none.pem", "--key", "none.pem"],
                "InvalidSetting",
                "cannot use --certificate and --key: ",
            ),
        ):
            command = [sys.executable, "-m", "allocator", "serve", *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
            last = json.loads(done.stderr.splitlines()[-1])

            assert (done.returncode, last["level"], last["error"]) == (1, "CRITICAL", error)
            assert sentence in last["message"]
            assert "listening on" not in done.stderr
            assert "Traceback" not in done.stderr


def test_settings_come_from_the_environment_and_secrets_from_files(tmp_path):
    secret = tmp_path / "url"
    secret.write_text(f"sqlite:///{tmp_path}/secret.db\n")
    known = {"ALLOCATOR_COMPAT": "leaf", "ALLOCATOR_GUARD_RESTARTS": "0"}
    of_kubernetes = {"ALLOCATOR_PORT": "tcp://10.96.12.7:8000"}
    with Served(ALLOCATOR_DATABASE_URL_FILE=str(secret), **of_kubernetes, **known) as service:
        assert service.post("/v1/tags/order/ids").ids == ["1"]
        assert service.get("/api/segment/get/order").status == 200

    assert (tmp_path / "secret.db").exists()


def test_a_proxy_on_this_machine_says_who_asks(tmp_path):
    with Served(f"sqlite:///{tmp_path}/ids.db") as service:
        service.get("/v1/tags", X_Forwarded_For="192.0.2.7, 127.0.0.1")
        assert until(lambda: [line for line in service.lines() if line.get("caller") == "192.0.2.7"])


def test_it_serves_https(tmp_path, monkeypatch):
    certificate, key = self_signed(tmp_path)
    options = ("--certificate", str(certificate), "--key", str(key))
    with Served(f"sqlite:///{tmp_path}/ids.db", options=options, ca=str(certificate)) as service:
        assert service.address.startswith("https://")
        assert service.post("/v1/tags/order/ids").ids == ["1"]
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with Allocator(service.address) as ids:
            assert ids.reserve("order", 2) == range(11, 13)
        assert service.stop() == 0
        assert "exceeded" not in service.log()  # urllib3 says no goodbye over TLS, for which the end does not wait


def self_signed(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key]
    subprocess.run([*words.split(), *files], check=True, capture_output=True)
    return certificate, key
