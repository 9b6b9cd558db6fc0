"""Keys of Django's models and numbers without gaps, on every database: one process tells each story."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.applications.django_shop import AS_MYSQLDB, environment

pytest.importorskip("django")

PROJECT = "from project.settings import *\n"
SETTINGS = {
    "django_story": """
DEFAULT_AUTO_FIELD = "allocator.integrations.django.AllocatedBigAutoField"
SILENCED_SYSTEM_CHECKS = ["models.W042"]
""",
    "django_numbers": """
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {}  # by IMMEDIATE an atomic block would wait where it begins
DATABASES["other"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "other.sqlite3"}
""",
}
CHAPTERS = {"django_story": 13, "django_numbers": 10}


@pytest.mark.parametrize("story", SETTINGS)
def test_a_story(story, kind, new_database: Callable[[str], str], tmp_path: Path, subtests):
    """Of `support.applications`: each chapter ends with nothing, or says why not."""
    settings = AS_MYSQLDB * (kind in {"mysql", "mariadb"}) + PROJECT + SETTINGS[story]
    (tmp_path / "told.py").write_text(settings)
    command = [sys.executable, "-m", f"support.applications.{story}", str(tmp_path)]
    here = environment(tmp_path, new_database(kind), "told")
    done = subprocess.run(command, env=here, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    chapters = json.loads(done.stdout.splitlines()[-1])

    assert len(chapters) == CHAPTERS[story]
    for chapter, why in chapters.items():
        with subtests.test(chapter):
            assert why == ""
