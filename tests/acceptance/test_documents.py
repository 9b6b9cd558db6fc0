"""The documents run as written: their Python, their commands, their statements, and what these print."""

import configparser
import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.documents.pages import NOT_RUN, PARSED, README, ROOT, RUN, Block, blocks, pages
from support.documents.reader import Reading, promised

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]
MAX_NOT_RUN = 20


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


def test_few_blocks_are_not_run():
    told = [f"{block}: {block.reason}" for block in all_blocks() if block.language == NOT_RUN]

    assert len(told) <= MAX_NOT_RUN, "\n".join(told)


def test_the_first_block_of_the_readme_comes_first_and_prints_ids():
    first = blocks(README)[0]

    assert first.language == "python"
    assert "Allocator(" in first.text
    assert len(promised(first.text)) == 4
    assert first.line < 8


WRONG = [
    ("sh", "true\nfalse\n"),
    ("python", "print(1)  # 2\n"),
    ("python", "print(1)\n"),
    ("python", "raise SystemExit(0)\n"),
    ("console", "$ allocator next order\n2\n"),
    ("console", "$ allocator next order --nonsense\n...\n"),
    ("console", "allocator next order\n"),
    ("sh", "false\n"),
    ("sh", "allocator next 'no tag'\n"),
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
