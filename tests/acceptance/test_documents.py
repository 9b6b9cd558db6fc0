"""The documents run as written, and name everything public; what they name exists, and their links lead somewhere."""

import configparser
import json
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import click
import pytest
import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from support.documents.pages import (
    INDENTED,
    NOT_RUN,
    PARSED,
    README,
    ROOT,
    RUN,
    Block,
    all_words,
    anchors,
    blocks,
    commands_named,
    links,
    pages,
    prose,
)
from support.documents.reader import Reading
from support.kit import commands

import allocator
from allocator import errors
from allocator.cli import main
from allocator.service import routes, schemas
from allocator.service.compat import of_leaf, of_tinyid
from allocator.service.metrics import Metrics

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks(page)]


def ini(text: str) -> None:
    configparser.ConfigParser(strict=False).read_string(text)  # of systemd, where an option may come again


PARSERS: dict[str, Callable[[str], object]] = {
    "toml": tomllib.loads,
    "ini": ini,
    "yaml": yaml.safe_load,
    "json": json.loads,
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_written(page: Path, tmp_path: Path):
    folder = tmp_path / "folder"
    if page.parent.parent.name == "examples":
        shutil.copytree(page.parent, folder)
    else:
        folder.mkdir()
    with Reading(folder) as reading:
        for block in blocks(page):
            reading.read(block)


def test_every_block_says_what_it_is():
    for block in all_blocks():
        assert block.language in {*RUN, *PARSED, NOT_RUN}, f"{block} is {block.language!r}, which nothing here runs"
        assert bool(block.reason) == (block.language == NOT_RUN), f"{block}: `text` says why it is not run, others run"


def test_settings_can_be_parsed():
    wrong = []
    for block in all_blocks():
        try:
            PARSERS.get(block.language, str)(block.text)
        except (ValueError, configparser.Error, yaml.YAMLError) as error:
            wrong.append(f"{block}: {error}")

    assert wrong == []


WRONG = [
    ("sh", "true\nfalse\n"),
    ("python", "print(1)  # 2\n"),
    ("python", "print(1)\n"),
    ("console", "$ allocator next order\n2\n"),
    ("console", "$ allocator next order --nonsense\n...\n"),
    ("console", "allocator next order\n"),
    ("sql", "SELECT 1;\n"),
    ("sql", "-- on sqlite:///a.db\nSELECT 1;  -- 2\n"),
]


def test_control_a_block_that_is_wrong_fails(tmp_path):
    with Reading(tmp_path) as reading:
        accepted = [(language, text) for language, text in WRONG if not is_wrong(reading, language, text)]

    assert accepted == []


def is_wrong(reading: Reading, language: str, text: str) -> bool:
    try:
        reading.read(Block(README, 1, language, text))
    except AssertionError:
        return True
    return False


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


def test_every_page_is_linked_from_the_index_or_the_readme_and_every_example_from_some_page():
    found = linked(*pages())

    assert set((ROOT / "docs").glob("*.md")) - linked(README, ROOT / "docs" / "index.md") == set()
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


def test_every_route_is_said():
    made = routes.routes(routes.IdHandlers(Mock(), Mock()))
    table = [(method, one.path) for one in made for method in one.methods]
    compatible = [*of_leaf(Mock(), Mock()), *of_tinyid(Mock(), Mock(), Mock())]
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


GRAFANA = ROOT / "examples" / "grafana"
BOARD = json.loads((GRAFANA / "allocator.json").read_text())
EXPRESSIONS = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
ALERTS = [rule for group in yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
ENDINGS = {"counter": ("_total",), "info": ("_info",), "histogram": ("_count", "_sum", "_bucket")}


def names_of(metric: Metric) -> set[str]:
    """As Prometheus stores them."""
    return {metric.name + ending for ending in ENDINGS.get(metric.type, ("",))}


def test_every_figure_is_said_and_on_the_board_and_no_other():
    counted = Metrics()
    metrics = [
        metric
        for metric in text_string_to_metric_families(counted.text().decode())
        if metric.name.startswith("allocator_")
    ]
    stored = {name for metric in metrics for name in names_of(metric)}
    asked = {name for one in EXPRESSIONS for name in re.findall(r"allocator_\w+", one)}
    woken = {name for rule in ALERTS for name in re.findall(r"allocator_\w+", rule["expr"])}

    assert sorted(metric.name for metric in metrics if metric.name not in WORDS) == []
    assert [metric.name for metric in metrics if not names_of(metric) & asked] == []
    assert woken
    assert asked | woken <= stored


# -- whatever is said exists


def test_every_command_that_is_named_exists_with_its_options():
    """Also in the messages of the package, where a command stands behind a colon."""
    messages = re.findall(r": allocator ([a-z][^\n\";]*)", re.sub(r'"\n +f?"', "", SOURCE))
    assert len(messages) > 20
    wrong = []
    for said in [*commands_named(), *messages]:
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
