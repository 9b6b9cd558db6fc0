"""The files of `examples/deployment`, by what can be checked without a cluster or a systemd that runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from allocator.cli import main
from allocator.cli.serve import serve, unknown_variables
from allocator.service import ServeSettings
from allocator.service.app import application
from allocator.service.http_server import DRAIN, GRACE

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "deployment"


def options_of(command: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Those that our command line reads from `allocator` and these words."""
    monkeypatch.setenv("ALLOCATOR_DATABASE_URL", "sqlite://")
    assert main.get_command(main.make_context("allocator", [*command]), command[0]) is serve
    return serve.make_context("serve", command[1:]).params


def test_kubernetes_probes_what_is_served_and_waits_for_what_is_running(tmp_path, monkeypatch):
    deployment, service = yaml.safe_load_all((EXAMPLE / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (port,) = container["ports"]
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    served = application(ServeSettings((f"sqlite:///{tmp_path}/ids.db",)))._framework

    assert {probe["path"] for probe in probes} <= {route.path for route in served.routes}
    assert {probe["port"] for probe in probes} | {service["spec"]["ports"][0]["targetPort"]} == {port["name"]}
    assert port["containerPort"] == options_of(container["args"], monkeypatch)["port"]
    assert f"EXPOSE {port['containerPort']}\n" in (ROOT / "Dockerfile").read_text()
    assert not unknown_variables({one["name"]: "" for one in container["env"]})
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    _, pause = container["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] > int(pause) + DRAIN + GRACE


def test_the_units_of_systemd_start_our_command_and_wait_for_what_is_running(tmp_path, monkeypatch):
    unit = (EXAMPLE / "allocator@.service").read_text()
    program, *command = re.search("^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()

    assert options_of(command, monkeypatch)["uds"] == ""
    assert program.removesuffix("/bin/allocator") == re.search("python3 -m venv ([^ ]+) ", unit)[1]
    port = re.search("^ListenStream=(.*)$", (EXAMPLE / "allocator@.socket").read_text(), re.MULTILINE)[1]
    assert f"curl -f --retry 30 --retry-all-errors http://{port.replace('%i', '1')}/readyz && " in unit
    assert not unknown_variables(dict(re.findall("^Environment=([A-Z_]+)=(.*)$", unit, re.MULTILINE)))
    assert float(re.search("^TimeoutStopSec=(.*)$", unit, re.MULTILINE)[1]) > DRAIN + GRACE
    if not shutil.which("systemd-analyze"):
        return
    (tmp_path / "allocator@.service").write_text(unit.replace(program, sys.executable))
    (tmp_path / "allocator@1.socket").write_text((EXAMPLE / "allocator@.socket").read_text())
    verify = ["systemd-analyze", "verify", "allocator@1.service"]
    said = subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (said.returncode, said.stderr) == (0, "")
