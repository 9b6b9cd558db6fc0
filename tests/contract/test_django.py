"""Keys of Django's models, on every database: one process tells a whole story, chapter by chapter."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.applications.django_shop import AS_MYSQLDB, environment

pytest.importorskip("django")


SETTINGS = """
from project.settings import *
DEFAULT_AUTO_FIELD = "allocator.integrations.django.AllocatedBigAutoField"
SILENCED_SYSTEM_CHECKS = ["models.W042"]
"""


@pytest.fixture(scope="module")
def stories() -> dict[str, subprocess.CompletedProcess[str]]:
    return {}


@pytest.fixture
def story(
    kind: str, new_database: Callable[[str], str], stories: dict[str, subprocess.CompletedProcess[str]], tmp_path: Path
) -> dict[str, str]:
    """How the chapters of `support.applications.django_story` ended, told once for each database."""
    if kind not in stories:
        url = new_database(kind)
        (tmp_path / "told.py").write_text((AS_MYSQLDB if kind in {"mysql", "mariadb"} else "") + SETTINGS)
        command = [sys.executable, "-m", "support.applications.django_story", str(tmp_path)]
        stories[kind] = subprocess.run(
            command, env=environment(tmp_path, url, "told"), capture_output=True, text=True, check=False, timeout=120
        )
    done = stories[kind]

    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_keys_of_models(story, subtests):
    assert len(story) == 12
    for chapter, why in story.items():
        with subtests.test(chapter):
            assert why == ""
