"""A missing framework is named in one sentence, and every hint installs this distribution."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAME = "segment-allocator"
"""On PyPI `allocator` is somebody else's package."""


def test_an_integration_without_its_framework_names_the_extra():
    code = "import sys; sys.modules['django'] = None; import allocator.integrations.django"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    words = f"allocator.integrations.django needs Django, which is not installed; pip install '{NAME}[django]'"

    assert done.stderr.splitlines()[-1] == f"ImportError: {words}"


def test_no_hint_installs_the_package_of_somebody_else():
    sources = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/README.md")]
    sources += [ROOT / "pyproject.toml", ROOT / "Dockerfile", *(ROOT / "allocator").rglob("*.py")]
    text = "\n".join(path.read_text() for path in sources)
    hints = re.findall(r"pip install [^\s#]+|[\w-]*allocator\[", text)
    wrong = [hint for hint in hints if "allocator" in hint and NAME not in hint.replace("_", "-")]

    assert wrong == []
    assert len([hint for hint in hints if NAME in hint]) > 5


def test_django_has_an_upper_bound_and_the_private_method_that_we_wrap():
    """A version with another `_save_table` would save an object under no key, or by a useless UPDATE first."""
    models = pytest.importorskip("django.db.models")
    from allocator.integrations.django.fields import inserting

    theirs = models.Model._save_table
    ours = signature(inserting(theirs), follow_wrapped=False).parameters.values()
    assert [(one.name, one.default) for one in ours] == [
        (one.name, one.default) for one in signature(theirs).parameters.values()
    ]
    (extra,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["django"]
    assert re.fullmatch(r"django>=[\d.]+,<[\d.]+", extra)
