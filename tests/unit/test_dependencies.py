"""What the package imports is declared in pyproject.toml, and is all that is declared."""

import ast
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from support.kit import Said, python

import allocator
from allocator import errors
from allocator.errors import InvalidSetting
from allocator.service import server

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
CORE = {"alembic", "click", "sqlalchemy"}
ROOMS = {
    "database/mysql": "mysql",
    "database/postgresql": "postgres",
    "public_ids": "server",  # where Pydantic asks for it
    "service": "server",
    "integrations/django": "django",
    "database/django": "django",
}
"""The extra that a folder or file may use, beside what every install has."""
BY_NAME = {"pymysql", "python-json-logger"}
"""SQLAlchemy loads the driver; the configuration of logs names its class."""
DISTRIBUTIONS = {"prometheus_client": "prometheus-client", "pydantic_core": "pydantic"}
OURS = {"allocator", "migrations", "_typeshed"}  # the last is of type checkers
OF_TESTS = {"integrations/pytest_plugin.py": {"pytest"}}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9-]", one)[0] for one in requirements}


def imported(path: Path) -> Iterator[str]:
    """The distributions of others that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        found = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        if isinstance(node, ast.Import):
            found = [one.name for one in node.names]
        for name in {one.partition(".")[0] for one in found} - {*OURS, *sys.stdlib_module_names}:
            yield DISTRIBUTIONS.get(name, name)


def test_what_is_imported_is_declared_by_the_extra_that_uses_it():
    wrong, used = [], set()
    for path in (ROOT / "allocator").rglob("*.py"):
        place = path.relative_to(ROOT / "allocator").as_posix()
        extras = [extra for room, extra in ROOMS.items() if place.startswith(room)]
        declared = CORE.union(OF_TESTS.get(place, ()), *(names(EXTRAS[extra]) for extra in extras))
        found = set(imported(path))
        used |= found
        wrong += [f"{place}: {name}" for name in found - declared]

    assert sorted(wrong) == []
    assert names(PROJECT["dependencies"]) == CORE
    wholly = names([one for name, each in EXTRAS.items() if name != "all" for one in each])
    assert wholly - used == BY_NAME


def test_all_is_every_extra():
    (found,) = EXTRAS["all"]
    assert sorted(re.findall(r"[a-z]+", found.partition("[")[2])) == sorted(EXTRAS.keys() - {"all"})
    assert re.fullmatch(r"django>=[\d.]+,<[\d.]+", *EXTRAS["django"]), "its private methods may change"


def test_a_package_of_the_service_that_is_missing_is_named_by_our_metadata(monkeypatch):
    server.check_installed()
    asked = {found[1] for one in requires("segment-allocator") or () if (found := server.NEEDED.match(one))}
    assert asked == names(EXTRAS["server"])
    monkeypatch.setattr(server, "requires", lambda name: ["click>=8", 'no-such>=1; extra == "server"'])
    with pytest.raises(InvalidSetting, match=r"needs no-such, which is not installed; pip install '.*\[server\]'"):
        server.check_installed()


# -- A missing framework is named in one sentence, and every hint installs this distribution


NAME = "segment-allocator"
"""On PyPI `allocator` is somebody else's package."""


def test_an_integration_without_its_framework_names_the_extra():
    code = "import sys; sys.modules['django'] = None; import allocator.integrations.django"
    words = f"allocator.integrations.django needs Django, which is not installed; pip install '{NAME}[django]'"

    assert python(code).err.splitlines()[-1] == f"ImportError: {words}"


def test_no_hint_installs_the_package_of_somebody_else():
    sources = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/README.md")]
    sources += [ROOT / "pyproject.toml", ROOT / "Dockerfile", *(ROOT / "allocator").rglob("*.py")]
    text = "\n".join(path.read_text() for path in sources)
    hints = re.findall(r"pip install [^\s#]+|[\w-]*allocator\[", text)
    wrong = [hint for hint in hints if "allocator" in hint and NAME not in hint.replace("_", "-")]

    assert wrong == []
    assert len([hint for hint in hints if NAME in hint]) > 5


# -- the errors, and the names of the package


def test_errors_are_imported_from_their_module():
    """And whoever asks the package for one is told so, by an import too, which hides the text of an AttributeError."""
    assert not {name for name in vars(errors) if name in allocator.__all__}
    words = "^UnknownTag is in allocator.errors: from allocator.errors import UnknownTag$"
    for way in ("allocator.UnknownTag", "from allocator import UnknownTag"):
        with pytest.raises(ImportError, match=words):
            exec(way)


def test_all_is_true():
    """What is imported for type checkers, what is imported when it is asked for, and what is listed."""
    source = ast.parse(Path(allocator.__file__).read_text())
    imported = [node for node in ast.walk(source) if isinstance(node, ast.ImportFrom)]
    homes = {
        alias.name: node.module for node in imported for alias in node.names if "allocator." in (node.module or "")
    }

    assert len(homes) <= 20  # whatever is new makes room, or has a module of its own, as errors and tests have
    assert sorted(homes) == sorted(allocator.__all__) == sorted({*dir(allocator)} - {"__version__", "errors"})
    assert homes == allocator.HOMES
    assert all(getattr(allocator, name) for name in (*allocator.__all__, "errors"))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = allocator.nonsense  # type: ignore[attr-defined]


# -- pyPI has an unrelated project named `allocator`. Whichever of the two is installed last, ours says it


PACKAGE = Path(allocator.__file__).parent
PUBLIC = (
    *("errors", "sync", "aio", "numbers", "public_ids", "testing", "doctor", "cli"),
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


def run(site: Path, code: str, *words: str) -> Said:
    return python(code, *words, cwd=site, env={"PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"})


def test_ours_installed_last_warns_and_works_and_is_imported_without_a_word_where_it_is_alone(site):
    code = "import allocator; print(allocator.__file__, allocator.ObjectId.__name__)"
    assert run(site, code) == (0, f"{site}/allocator/__init__.py ObjectId\n", "")

    (site / "allocator-1.2.dist-info").mkdir()
    done = run(site, code)
    assert done.out == f"{site}/allocator/__init__.py ObjectId\n"
    assert done.err.count("RuntimeWarning: an unrelated project named 'allocator' is installed") == 1
    assert "pip uninstall allocator segment-allocator, then install segment-allocator again" in done.err


def test_theirs_installed_last_is_said_by_all_that_is_left_of_ours(site):
    (site / "allocator-1.2.dist-info").mkdir()
    (site / "allocator" / "__init__.py").write_text("__version__ = '1.2'\n")
    said = run(site, IMPORT_EACH).out.splitlines()
    command = run(site, "from allocator.cli import main; main()", "--version")

    words = f"the unrelated project 'allocator' has replaced files of {NAME}, as {site}/allocator/__init__.py"
    assert [line for line in said if not line.startswith(words)] == []
    assert len(said) == len(PUBLIC)
    assert (command.code, command.err.splitlines()[-1].startswith(f"ImportError: {words}")) == (1, True)
