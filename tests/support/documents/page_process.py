"""A process that does what a page says: Python and `allocator` commands, one after the other, in one folder.

A process for each page and not for each block, since to import SQLAlchemy costs more than most blocks. A request is the
environment, with Python or the words of a command.
"""

import contextlib
import io
import os
import sys
import traceback
from types import ModuleType
from typing import Any


def run_python(code: str) -> tuple[str, int]:
    """What it prints, with the traceback behind it where it fails; each block begins with nothing imported.

    As the main module, where annotations that are text are looked up.
    """
    told, block, ours = io.StringIO(), ModuleType("__main__"), sys.modules["__main__"]
    sys.modules["__main__"] = block
    try:
        with contextlib.redirect_stdout(told):
            exec(compile(code, "page", "exec"), vars(block))
    except BaseException:
        return told.getvalue() + traceback.format_exc(), 1
    finally:
        sys.modules["__main__"] = ours
    return told.getvalue(), 0


def run_command(words: list[str]) -> tuple[str, int]:
    from click.testing import CliRunner

    from allocator.cli import main

    done = CliRunner().invoke(main, words, prog_name="allocator")
    if done.exception and not isinstance(done.exception, SystemExit):
        traceback.print_exception(done.exception)
    return done.output, done.exit_code


def main(told: Any, folder: str) -> None:
    """Answer each request with a text and an exit code, in a folder where modules are found first."""
    os.chdir(folder)
    sys.path.insert(0, "")
    os.dup2(2, 1)  # whatever a block writes past `sys.stdout`
    with contextlib.suppress(EOFError):
        while True:
            environment, asked = told.recv()
            os.environ.clear()
            os.environ.update(environment)
            told.send(run_python(asked) if isinstance(asked, str) else run_command(asked))
