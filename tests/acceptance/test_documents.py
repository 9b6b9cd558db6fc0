"""The documents run as written: their Python, their commands, their statements, and what these print."""

from __future__ import annotations

import configparser
import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.documents.pages import NOT_RUN, PARSED, README, ROOT, RUN, Block, blocks, pages
from support.documents.reader import Reading, alike, promised

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]
MAX_NOT_RUN = 20


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
    reading = Reading(folder)
    try:
        for block in blocks(page):
            reading.read(block)
    finally:
        reading.close()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page: Path):
    for block in blocks(page):
        assert block.language in {*RUN, *PARSED, NOT_RUN}, f"{block} is {block.language!r}, which nothing here runs"
        assert bool(block.reason) == (block.language == NOT_RUN), f"{block}: `text` says why it is not run, others run"


@pytest.mark.parametrize("page", PAGES)
def test_settings_can_be_parsed(page: Path):
    for block in blocks(page):
        if parse := PARSERS.get(block.language):
            parse(block.text)


def test_few_blocks_are_not_run():
    told = [f"{block}: {block.reason}" for page in pages() for block in blocks(page) if block.language == NOT_RUN]

    assert len(told) <= MAX_NOT_RUN, "\n".join(told)


def test_the_first_block_of_the_readme_comes_first_and_prints_ids():
    first = blocks(README)[0]

    assert first.language == "python"
    assert "Allocator(" in first.text
    assert len(promised(first.text)) == 5
    assert first.line < 8


# -- controls: a page that is wrong is found out


@pytest.fixture
def read(tmp_path: Path):
    reading = Reading(tmp_path)
    yield lambda language, text: reading.read(Block(README, 1, language, text))
    reading.close()


@pytest.mark.parametrize(
    ("language", "text"),
    [
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
    ],
)
def test_control_a_block_that_is_wrong_fails(read, language, text):
    with pytest.raises(AssertionError):
        read(language, text)


def test_commands_share_a_folder_and_an_environment(read):
    read("sh", "export ALLOCATOR_DATABASE_URL=sqlite:///one.db\nallocator next order\nls one.db\n")
    read("console", "$ allocator next order\n2\n$ allocator next 'no tag'\nerror: ...\n$ echo $((1 + 1)) | cat\n2\n")
    read("python", 'import os\nprint(os.environ["ALLOCATOR_DATABASE_URL"])  # sqlite:///one.db: as exported\n')


def test_statements_are_run_one_by_one_and_read_from_files(read):
    read("sh", "echo 'INSERT INTO numbers VALUES (7);' > more.sql\n")
    read(
        "sql",
        "-- on sqlite:///numbers.db\nCREATE TABLE numbers (n);\n-- and\n\\i more.sql\n"
        "SELECT n, 'a' FROM numbers;  -- 7 | a\n",
    )


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        ("1\n", "1", True),
        ("a ... c\n", "a b c\n", True),
        ("a\n...\nc\n", "a\nb\nb\nc\n", True),
        ("a\n...\n", "a\n", True),
        ("a ... c\n", "a b d\n", False),
        ("a\n", "a\nb\n", False),
        ("", "a\n", False),
    ],
)
def test_output_is_compared_with_room_for_what_varies(expected, found, same):
    assert alike(expected, found) == same
