"""Generators in other languages under `allocator worker run`: each has its number, and no id comes twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "worker_numbers"
PROGRAMS = {"java": ["java", "Ids.java"], "node": ["node", "ids.mjs"], "go": ["go", "run", "ids.go"]}
COMPILERS = {"java": "javac"}
"""Needed beside the command."""
COUNT = 20_000


@pytest.mark.skipif(sys.platform != "linux", reason="needs timerfd and prctl of Linux")
@pytest.mark.parametrize("language", PROGRAMS)
def test_two_programs_at_once_make_different_ids(language, tmp_path):
    program = PROGRAMS[language]
    needed = COMPILERS.get(language, program[0])
    if not shutil.which(needed):
        pytest.skip(f"there is no command {needed}")
    url = f"sqlite:///{tmp_path}/ids.db"
    words = [sys.executable, "-m", "allocator", "worker", "run", "--url", url, "--space", "shop", "--"]
    outs = [tmp_path / name for name in ("one", "two")]
    running = []
    for out in outs:
        with out.open("w") as file:
            running.append(subprocess.Popen([*words, *program, str(COUNT)], cwd=EXAMPLE, stdout=file))
    assert [one.wait(120) for one in running] == [0, 0]
    drawn = [[int(line) for line in out.read_text().split()] for out in outs]

    assert [len(ids) for ids in drawn] == [COUNT, COUNT]
    assert all(ids == sorted(ids) for ids in drawn)
    assert len(set(drawn[0]) | set(drawn[1])) == 2 * COUNT
