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
    texts = WORDS + "".join((ROOT / name).read_text() for name in ("Dockerfile", "compose.yaml"))
    said = {name for name in re.findall(r"\bALLOCATOR_[A-Z_]*[A-Z]\b", texts) if not name.startswith("ALLOCATOR_TEST")}

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
