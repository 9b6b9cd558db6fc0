"""Everything public is said somewhere in the documents, what they name exists, and their links lead somewhere."""

import re
from pathlib import Path
from typing import Any

import click
import yaml
from prometheus_client import CollectorRegistry
from support.documents.pages import (
    INDENTED,
    README,
    ROOT,
    all_words,
    anchors,
    commands_named,
    links,
    pages,
    prose,
)
from support.kit import commands

import allocator
from allocator import errors
from allocator.cli import main
from allocator.database.tables import REVISIONS
from allocator.service import routes, schemas
from allocator.service.compat import of_leaf, of_tinyid
from allocator.service.metrics import Metrics

INDEX = ROOT / "docs" / "index.md"
WORDS = all_words()
SOURCE = "\n".join(path.read_text() for path in (ROOT / "allocator").rglob("*.py"))
ALWAYS = {"-h", "--help", "--version"}


# -- links


def test_links_lead_somewhere():
    """Beside `mkdocs build --strict`, which reads no README."""
    assert [f"{page.name}: {link}" for page in pages() for link in links(page) if not leads_somewhere(page, link)] == []


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    return link.startswith(("https://", "http://")) or (target.exists() and (not anchor or anchor in anchors(target)))


def linked(*from_pages: Path) -> set[Path]:
    return {(page.parent / link.partition("#")[0]).resolve() for page in from_pages for link in links(page)}


def test_every_page_is_linked_from_the_index_or_the_readme():
    assert set((ROOT / "docs").glob("*.md")) - linked(README, INDEX) == set()


def test_every_page_is_in_the_navigation_of_the_site():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]

    assert sorted(re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)) == sorted(
        page.name for page in (ROOT / "docs").glob("*.md")
    )


def test_every_example_is_linked_from_some_page():
    found = linked(*pages())

    assert [page for page in (ROOT / "examples").glob("*/README.md") if not {page, page.parent} & found] == []


def test_code_stands_in_fences_where_it_is_run():
    assert [page.name for page in pages() if INDENTED.search(prose(page))] == []


def test_the_readme_begins_with_the_two_commands():
    """`.ci/run` and `.ci/try-run` type them from there."""
    begin = README.read_text().partition("\n## ")[0]
    commands = re.findall(r"^(make \w+) ", begin, re.MULTILINE)

    assert commands == ["make run", "make test"]
    assert [one for one in commands if f"\n{one.removeprefix('make ')}:" not in (ROOT / "Makefile").read_text()] == []
    assert "Python 3.11 or later and make" in begin


def test_the_readme_is_read_in_two_minutes():
    words = re.sub(r"<!--.*?-->", "", prose(README), flags=re.DOTALL).split()

    assert 500 < len(words) <= 900


# -- whatever is public is said


COMMANDS = dict(commands())


def options(command: click.Command) -> set[str]:
    return {word for option in command.params if isinstance(option, click.Option) for word in option.opts}


def test_every_public_name_is_said():
    raised = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)]

    assert [name for name in (*allocator.__all__, *raised) if not re.search(rf"\b{name}\b", WORDS)] == []


def test_every_command_and_option_is_said():
    said = "\n".join(commands_named())

    assert [name for name in COMMANDS if name not in said] == []
    assert sorted({one for command in COMMANDS.values() for one in options(command) if one not in WORDS}) == []


class Nothing:
    """For what is not called."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: object) -> Any:
        return self


def test_every_route_is_said():
    made = routes.routes(routes.IdHandlers(Nothing(), Nothing()))  # type: ignore[arg-type]
    table = [(method, one.path) for one in made for method in one.methods]
    compatible = [*of_leaf(Nothing(), Nothing()), *of_tinyid(Nothing(), Nothing(), Nothing())]  # type: ignore[arg-type]
    page = (ROOT / "docs" / "http.md").read_text()

    assert [f"{method} {path}" for method, path in table if f"`{method} {path}`" not in page] == []
    assert [route.path for route in compatible if route.path.partition("{")[0].rstrip("/") not in page] == []
    assert {"/healthz", "/readyz", "/metrics", "/openapi.json"} <= set(re.findall(r"`GET (/\S*)`", page))


def test_every_parameter_of_a_route_is_said():
    forms = [one for one in vars(schemas).values() if isinstance(one, type) and issubclass(one, schemas.Form)]
    named = {name for form in forms for name in form.model_fields}
    page = (ROOT / "docs" / "http.md").read_text()

    assert sorted(name for name in named if f"`{name}`" not in page) == []


def test_every_variable_of_the_environment_is_said_and_no_other():
    known = set(re.findall(r"\bALLOCATOR_[A-Z_]*[A-Z]\b", SOURCE)) | {
        "ALLOCATOR_TOKEN_FILE",
        "ALLOCATOR_PUBLIC_KEY_FILE",
    }
    known |= {str(option.envvar) for command in COMMANDS.values() for option in command.params if option.envvar}
    said = {name for name in re.findall(r"\bALLOCATOR_[A-Z_]*[A-Z]\b", WORDS) if not name.startswith("ALLOCATOR_TEST")}

    assert said == known


def test_every_figure_is_said_and_no_other():
    figures = {metric.name for metric in registered()}
    said = set(re.findall(r"\b(allocator_[a-z_]+?)(?:_total|_count)?(?=[{`\[ ])", "\n".join(alerts())))

    assert sorted(name for name in figures if name not in WORDS) == []
    assert said
    assert said <= figures


def registered() -> list[Any]:
    registry: CollectorRegistry = Metrics()._registry
    return [metric for metric in registry.collect() if metric.name.startswith("allocator_")]


def alerts() -> list[str]:
    """What the rules for Prometheus ask for."""
    groups = yaml.safe_load((ROOT / "examples" / "grafana" / "alerts.yaml").read_text())["groups"]
    return [f"{rule['expr']} " for group in groups for rule in group["rules"]]


# -- whatever is said exists


def test_every_command_that_is_named_exists_with_its_options():
    wrong = []
    for said in commands_named():
        command = command_of(said)
        if command is None:
            wrong.append(said)
            continue
        unknown = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", said)) - options(command) - ALWAYS
        wrong += [f"{said}: {one}" for one in unknown]

    assert wrong == []


def command_of(said: str) -> click.Command | None:
    """The command, or the group where several are named, as in `tags create|set`."""
    words = said.split()
    found: click.Command = main
    while isinstance(found, click.Group) and words:
        names = re.split(r"[|]", words.pop(0).strip(".,:;)"))
        if not set(names) <= set(found.commands):
            return None
        found = found.commands[names[0]]
    return found


def test_control_a_command_that_does_not_exist_is_noticed():
    assert command_of("nexxt order") is None
    assert command_of("tags create|sett") is None
    assert command_of("tags create order --step 5") is COMMANDS["tags create"]


# -- nothing says what was before the first release

KINDS = {".html", ".ini", ".mako", ".md", ".py", ".sql", ".toml", ".yaml", ".yml"}
FOLDERS = (".github", "allocator", "benchmarks", "docs", "examples", "migrations", "tests")
A_VERSION = re.compile(r"\b(?:allocator\W{1,4}|version\W{1,4}|of |since )(0\.[1-9]\d*)\b(?! ?(?:%|m?s\b|seconds))")
A_REVISION = re.compile(r"\b(?:depends_on|HEAD|REVISIONS|[Rr]evision)\W{1,9}(\d{4})\b")
NEVER_PUBLISHED = (
    *("op.takeover", "TakeOver", "bind_tag", "BindTag", "LeftOut", "include_object", "one_per_process"),
    *("ids_rate", "ids-rate", "requests_rate", "requests-rate", "names_with_rates", "'anonymous'", "`anonymous`"),
    *("any more, and is left out", "an older version gave", "written by older versions"),
)
OF_NO_RELEASE = "9999"
"""The revision of tables that are too new, in tests."""


def of_before(words: str) -> list[str]:
    """Versions that the change log has not, revisions that the schema has not, and what was in no release."""
    released = set(re.findall(r"^## (\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE))
    unknown = set(A_VERSION.findall(words)) - released | set(A_REVISION.findall(words)) - {*REVISIONS, OF_NO_RELEASE}
    return sorted(unknown) + [one for one in NEVER_PUBLISHED if one in words]


def test_no_text_says_what_was_before_the_first_release():
    paths = [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    texts = {path: path.read_text() for path in paths if path.suffix in KINDS and path != Path(__file__)}
    found = {str(path.relative_to(ROOT)): of_before(words) for path, words in texts.items()}

    assert {place: words for place, words in found.items() if words} == {}
    assert len(texts) > 400


def test_control_what_was_before_the_first_release_is_noticed():
    for words in ("as of 0.2, ", "version 0.3.0", 'depends_on = "0013"', "is at revision 0002", "op.takeover('start')"):
        assert of_before(words), words
    for words in ("waits of 0.2 s", "in 0.25 seconds", "version 0.1.0", 'revision = "0001"', "SQLAlchemy 2.0.43"):
        assert of_before(words) == [], words
