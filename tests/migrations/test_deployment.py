"""The ways in which the schema is deployed: `alembic` in a checkout, `allocator db` from a wheel elsewhere."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from support.kit import SQLITE

import allocator
from allocator.database.tables import REVISIONS

CHECKOUT = Path(allocator.__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def call(*words: str, url: str = "", cwd: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ALLOCATOR_DATABASE_URL": url} if url else dict(os.environ)
    return subprocess.run([*words], env=environment, cwd=cwd, capture_output=True, text=True, check=False)


def alembic(*words: str, url: str) -> str:
    done = call(sys.executable, "-m", "alembic", *words, url=url)
    assert done.returncode == 0, done.stderr
    return done.stdout


TWO = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)], indirect=True)
"""An embedded one and a server: what the scripts do on each of them is in `test_schema.py`."""


@TWO
def test_alembic_in_a_checkout(empty):
    alembic("upgrade", "head", url=empty)
    assert f"{REVISIONS[-1]} (head)" in alembic("current", url=empty)
    assert "No new upgrade operations" in alembic("check", url=empty)

    with allocator.Allocator(empty) as ids:
        assert ids.next_id("order") == 1


def test_alembic_wants_a_url():
    for given in ((), ("-x", "url=")):
        done = call(sys.executable, "-m", "alembic", *given, "upgrade", "head", url="")

        assert done.returncode != 0
        assert "no database is named; give its URL by `alembic -x url=…` or ALLOCATOR_DATABASE_URL" in done.stdout


@pytest.mark.nightly
def test_the_page_of_a_registry_has_no_dead_link(wheel):
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (one for one in opened.namelist() if one.endswith("/METADATA"))
        page = opened.read(name).decode().partition("\n\n")[2]

    assert "Integer ids for Python backends" in page
    assert [target for target in re.findall(r"\]\(([^)]*)\)", page) if not target.startswith("https://")] == []


@pytest.mark.nightly
def test_the_wheel_holds_the_migrations_and_the_types(wheel):
    names = zipfile.ZipFile(wheel).namelist()

    assert wheel.name.startswith(f"segment_allocator-{allocator.__version__}-")
    assert "allocator/migrations/env.py" in names
    assert any(name.startswith(f"allocator/migrations/versions/{REVISIONS[-1]}_") for name in names)
    assert "allocator/py.typed" in names
    assert not [name for name in names if "benchmarks" in name]
    assert {name.partition("/")[0] for name in names if "dist-info" not in name} == {"allocator"}
    assert not [name for name in names if name.startswith(("tests/", "migrations/")) or name.endswith(".pyc")]


@pytest.mark.nightly
@SQLITE
def test_a_wheel_installed_elsewhere_brings_its_schema(wheel, empty, tmp_path):
    """Only the wheel comes from a new environment; its dependencies are those of this run."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "others.pth").write_text("\n".join(others))
    where = call(str(python), "-c", "import allocator; print(allocator.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where.stdout, where.stderr

    for words, said in (
        (("upgrade",), f"is at revision {REVISIONS[-1]}"),
        (("check",), f"is at revision {REVISIONS[-1]} (the newest)\nthe tables are correct"),
    ):
        done = call(str(python), "-m", "allocator", "db", *words, url=empty, cwd=tmp_path)
        assert (done.returncode, said in done.stdout) == (0, True), done.stderr
