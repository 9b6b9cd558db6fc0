"""The image and compose.yaml agree with the package and its documents; the CI's job `image` builds and runs them."""

import json
import re
import urllib.request
from pathlib import Path

import pytest
import yaml
from support.documents.pages import SERVICE, granted

import allocator
from allocator.cli import main
from allocator.cli.options import TOKEN_VARIABLE, URL_VARIABLE

ROOT = Path(allocator.__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = (ROOT / "compose.yaml").read_text()


def test_every_variable_is_one_that_is_looked_at():
    options = {parameter.envvar for parameter in main.commands["serve"].params}
    known = options | {URL_VARIABLE, TOKEN_VARIABLE, f"{URL_VARIABLE}_FILE", f"{TOKEN_VARIABLE}_FILE"}
    for text in (DOCKERFILE, COMPOSE):
        named = set(re.findall(r"ALLOCATOR_[A-Z_]+", text))

        assert named
        assert named <= known


def test_the_service_may_write_what_the_page_on_rights_says():
    (text,) = yaml.safe_load(COMPOSE)["services"]["rights"]["command"]
    page = [one for one in granted("postgres", SERVICE, "allocator_service") if "SCHEMA" not in one]

    assert {one for one in page if "SELECT" not in one} == {
        one.strip() for one in re.findall(r"GRANT (?!SELECT).*(?=;)", text)
    }


@pytest.mark.parametrize(("given", "port"), [(None, 8000), ("9000", 9000), ("tcp://10.96.12.7:8000", 8000)])
def test_the_image_asks_for_its_health_where_the_service_listens(given, port, monkeypatch):
    """Kubernetes sets the last value where a Service is called `allocator`; the service ignores it too."""
    monkeypatch.delenv("ALLOCATOR_PORT", raising=False)
    if given:
        monkeypatch.setenv("ALLOCATOR_PORT", given)
    asked: list[str] = []
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", lambda self, url, timeout: asked.append(url))
    (words,) = re.findall(r"^HEALTHCHECK .*? CMD (.*\])$", DOCKERFILE.replace("\\\n", ""), re.MULTILINE)
    exec(json.loads(words)[2], {})

    assert asked == [f"http://127.0.0.1:{port}/healthz"]
