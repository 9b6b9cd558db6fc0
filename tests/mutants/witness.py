"""A plugin for the pytest that runs against a copy: is it the copy that is tested, and why did the first test fail?"""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

COPY = "ALLOCATOR_MUTANT"
"""The variable with the folder of the copy."""
BROKEN = 9
"""The exit code where the package of the copy cannot be used at all, which would be no kill."""
UNUSABLE = "the copy cannot be used"
FAILURE = "failure.json"


def pytest_sessionstart(session: pytest.Session) -> None:
    """The package is that of the copy, and a plain `next_id` works: what is wrong with it has to be found."""
    copy = Path(os.environ[COPY])
    try:
        import allocator

        found = Path(allocator.__file__)
        assert found.is_relative_to(copy), f"allocator was imported from {found}, and not from {copy}"
        with allocator.Allocator(f"sqlite:///{copy}/plain.db") as ids:
            assert ids.next_id("plain") > 0
    except Exception as error:
        pytest.exit(f"{UNUSABLE}: {type(error).__name__}: {error}", returncode=BROKEN)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    report = yield
    failure = Path(os.environ[COPY]) / FAILURE
    if report.failed and call.excinfo is not None and not failure.exists():
        error = call.excinfo
        said = {"test": item.nodeid, "when": call.when, "error": error.typename, "words": str(error.value)}
        failure.write_text(json.dumps(said))
    return report
