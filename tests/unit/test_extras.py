"""What needs a framework says so in one sentence where it is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("name", "called"), [("django", "Django"), ("flask", "Flask")])
def test_an_integration_without_its_framework_names_the_extra(name, called):
    code = f"import sys; sys.modules[{name!r}] = None; import allocator.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    words = f"allocator.integrations.{name} needs {called}, which is not installed; pip install 'allocator[{name}]'"

    assert done.stderr.splitlines()[-1] == f"ImportError: {words}"
