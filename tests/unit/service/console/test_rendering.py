"""Templates and static files as they are shipped."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from starlette.requests import Request

from allocator.service.console.rendering import STATIC, Pages


def test_no_template_is_made_ready_while_somebody_waits(monkeypatch):
    token_cache: Any = SimpleNamespace(failure=None)
    refusals: Any = None
    pages = Pages(token_cache, refusals)
    monkeypatch.delattr("jinja2.Environment.compile")

    assert pages.render(
        Request({"type": "http", "path": "/", "headers": []}), None, "refused", detail="no", request_name="x"
    )


def test_what_comes_from_elsewhere_has_its_licence_and_version():
    vendor = STATIC / "vendor"
    versions = json.loads((vendor / "versions.json").read_text())
    folders = [path for path in vendor.iterdir() if path.is_dir()]

    assert sorted(versions) == sorted(path.name for path in folders)
    for folder in folders:
        assert (folder / "LICENSE").read_text().strip()
        scripts = " ".join(path.read_text() for path in folder.glob("*.js"))
        assert versions[folder.name]["version"] in scripts
