"""The README runs as written: its Python, its command line, and what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import allocator

README = (Path(allocator.__file__).parent.parent / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


def promised(block: str) -> list[str]:
    """What the comments behind each print say, without the explanation after a colon."""
    return [
        re.split(r": (?=[a-z])", line.split("# ", 1)[1])[0].strip() for line in block.splitlines() if "print(" in line
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the whole README, as a reader would have."""
    return tmp_path_factory.mktemp("readme")


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_a_block_of_python_runs_and_prints_what_it_says(folder: Path, number: int):
    block = PYTHON[number]
    done = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised(block)


def test_the_first_block_comes_first_and_prints_ids():
    assert "Allocator(" in PYTHON[0]
    assert len(promised(PYTHON[0])) == 5
    assert README.index("```") < 200


def test_the_command_line_prints_what_it_says(tmp_path: Path):
    for block in CONSOLE:
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            words, _, expected = command.partition("\n")
            program = [sys.executable, "-m", *words.split()]
            done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)

            assert done.stdout == expected, words
            assert done.returncode == 0


def test_every_public_name_and_command_is_in_the_readme():
    from allocator.cli import main

    missing = [name for name in allocator.__all__ if name not in README and not name.startswith(("Invalid", "Async"))]
    commands = [f"allocator {name}" for name in main.commands]

    assert set(missing) <= {"ClockWentBack", "LeaseLost", "NodeIdsExhausted", "Sequence", "Tag"}
    assert [command for command in commands if command not in README] == []
