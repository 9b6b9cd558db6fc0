"""PyPI has an unrelated project named `allocator`. Whichever of the two is installed last, ours says it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import allocator

PACKAGE = Path(allocator.__file__).parent
PUBLIC = (
    *("errors", "sync", "aio", "numbers", "public_ids", "testing", "doctor", "service", "cli"),
    *(f"integrations.{name}" for name in ("sqlalchemy", "alembic", "django", "starlette", "pytest_plugin")),
)
IMPORT_EACH = f"""
import importlib
for name in {PUBLIC}:
    try:
        importlib.import_module(f"allocator.{{name}}")
        print(name, "is imported")
    except ImportError as error:
        print(error)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages into which ours is installed."""
    shutil.copytree(PACKAGE, tmp_path / "allocator", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "segment_allocator-0.1.0.dist-info").mkdir()
    return tmp_path


def run(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", *words]
    return subprocess.run(
        command, cwd=site, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=False, timeout=60
    )


def install_theirs(site: Path) -> None:
    (site / "allocator-1.2.dist-info").mkdir()


def test_ours_alone_is_imported_without_a_word(site):
    done = run(site, "-c", "import allocator; print(allocator.__file__)")

    assert (done.stdout, done.stderr) == (f"{site}/allocator/__init__.py\n", "")


def test_ours_installed_last_warns_and_works(site):
    install_theirs(site)

    done = run(site, "-c", "import allocator; print(allocator.ObjectId.__name__)")

    assert done.stdout == "ObjectId\n"
    assert done.stderr.count("RuntimeWarning: an unrelated project named 'allocator' is installed") == 1
    assert "pip uninstall allocator segment-allocator, then install segment-allocator again" in done.stderr


def test_theirs_installed_last_is_said_by_all_that_is_left_of_ours(site):
    install_theirs(site)
    (site / "allocator" / "__init__.py").write_text("__version__ = '1.2'\n")

    said = run(site, "-c", IMPORT_EACH).stdout.splitlines()
    command = run(site, "-c", "from allocator.cli import main; main()", "--version")

    words = (
        f"the unrelated project 'allocator' has replaced files of segment-allocator, as {site}/allocator/__init__.py"
    )
    assert [line for line in said if not line.startswith(words)] == []
    assert len(said) == len(PUBLIC)
    assert (command.returncode, command.stderr.splitlines()[-1].startswith(f"ImportError: {words}")) == (1, True)
