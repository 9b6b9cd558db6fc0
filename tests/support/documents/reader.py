"""Reads a page as its reader would: block after block, in one folder, and compares what is said with what it says."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.closing import Closing
from support.documents import page_process
from support.documents.page_places import Stage
from support.documents.pages import Block
from support.processes.crew import PROCESSES

ANY = "..."
"""In a line of output, whatever stands there; a line of its own, any lines."""

SHELL = re.compile(r"[|&;<>()$`*?\[\]{}~]")
QUOTED = re.compile(r"'[^']*'")
REFUSED = re.compile(r"^(error:|Error:|danger |outage |gap |curl: )", re.MULTILINE)
MADE_FILE = re.compile(r"^([-0-9:, ]+ WARNING )?made a new SQLite database at .*\n", re.MULTILINE)
"""What the first command or program says that draws from a file; a page may leave it out."""
MARK = "-- environment of the page --"


def alike(expected: str, found: str) -> bool:
    return re.fullmatch("".join(map(pattern, expected.splitlines())), ending(found)) is not None


def pattern(line: str) -> str:
    """Of a line of output; the blanks between columns are as many as it takes."""
    if line.strip() == ANY:
        return r"(?:.*\n)*?"
    exact = re.sub(r"(\\ )+", " +", re.escape(line.rstrip()))
    return exact.replace(re.escape(ANY), ".*") + r" *\n"


def ending(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def codes(expected: str) -> set[int]:
    """With which a command may end that says this: as `allocator doctor` does, when anything may be found."""
    if expected.strip() == ANY:
        return {0, 1}
    return {1} if REFUSED.search(expected) else {0}


def promised(code: str) -> list[str]:
    """What the comments behind each print say, without the explanation after a colon."""
    return [
        re.split(r": (?=[a-z])", line.split("  # ", 1)[1])[0].strip() if "  # " in line else "(no comment says what)"
        for line in code.splitlines()
        if "print(" in line
    ]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Of a block of `console`: each command, and the output under it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = command[:-1] + more.removeprefix("> ").strip()
        yield command, output


class Reading(Closing):
    def __init__(self, folder: Path) -> None:
        self.stage = Stage(folder)
        self.folder = folder
        self.environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        for name in [name for name in self.environment if name.startswith("ALLOCATOR_")]:
            del self.environment[name]
        self._told, theirs = PROCESSES.Pipe()
        self._pupil = PROCESSES.Process(target=page_process.main, args=(theirs, str(folder)))
        self._pupil.start()
        theirs.close()

    def close(self) -> None:
        self._told.close()
        self._pupil.join(60)
        self._pupil.kill()
        self.stage.close()

    # -- blocks

    def read(self, block: Block) -> None:
        acts = {"python": self._python, "console": self._console, "sh": self._sh, "sql": self._sql}
        if act := acts.get(block.language):
            act(block)

    def _python(self, block: Block) -> None:
        said, code = self._ask(self.stage.real(block.text))
        assert code == 0, f"{block} fails:\n{said}"
        self._same(block, "its Python", "\n".join(promised(block.text)), said)

    def _console(self, block: Block) -> None:
        found = list(commands(block.text))
        assert found, f"{block} has no line that begins with $"
        for command, expected in found:
            said, code = self._run(command)
            assert code in codes(expected), f"{block}: {command}\nexit code {code}:\n{said}"
            self._same(block, command, expected, said)

    def _sh(self, block: Block) -> None:
        text = re.sub(r"\\\n\s*", "", block.text)
        for line in text.splitlines():
            said, code = self._run(line)
            assert code == 0, f"{block}: {line}\nexit code {code}:\n{said}"

    def _sql(self, block: Block) -> None:
        first, _, statements = block.text.partition("\n")
        assert first.startswith("-- on "), f"{block} must begin with a line `-- on URL`"
        for expected, row in self.stage.execute(first.removeprefix("-- on "), statements):
            self._same(block, "a row", expected, row)

    def _same(self, block: Block, what: str, expected: str, said: str) -> None:
        told = self.stage.told(said if MADE_FILE.search(expected) else MADE_FILE.sub("", said))
        assert alike(expected, told), f"{block}: {what}\nthe page says:\n{expected}\nand it was:\n{told}"

    # -- commands

    def _run(self, command: str) -> tuple[str, int]:
        command = self.stage.real(command)
        is_plain = not SHELL.search(QUOTED.sub("", command))
        words = shlex.split(command, comments=True) if is_plain else []
        if not words and is_plain:
            return "", 0
        if words[:2] == ["allocator", "serve"]:
            return self.stage.serve(without_address(words[2:]), self.environment), 0
        if words[:1] == ["allocator"] and words[1:3] != ["worker", "run"]:  # which forks, and takes all signals
            return self._ask(words[1:])
        return self._shell(command)

    def _shell(self, command: str) -> tuple[str, int]:
        """Bash, which leaves behind what it has exported; the progress of curl is no output."""
        ended = f'code=$?; echo; echo "{MARK}"; env -0; exit $code'
        done = subprocess.run(
            ["bash", "-c", f"trap '{ended}' EXIT\nset -a\ncurl() {{ command curl -sS \"$@\"; }}\n{command}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        said, _, variables = done.stdout.rpartition(f"\n{MARK}\n")
        self.environment = {
            name: value
            for part in variables.split("\0")
            if part
            for name, _, value in [part.partition("=")]
            if not name.startswith("BASH_FUNC_")
        }
        return said, done.returncode

    def _ask(self, asked: str | list[str]) -> tuple[str, int]:
        self._told.send((self.environment, asked))
        found: tuple[str, int] = self._told.recv()
        return found


def without_address(words: list[str]) -> list[str]:
    """The test chooses the port, and listens on this machine."""
    kept = list(words)
    for option in ("--host", "--port"):
        if option in kept:
            at = kept.index(option)
            del kept[at : at + 2]
    return kept
