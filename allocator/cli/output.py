"""Where a command's output goes, when it goes nowhere: one sentence, and exit code 1."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, NoReturn

import click

from allocator.cli.options import REFUSED, refuse
from allocator.errors import InvalidSetting

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


class Commands(click.Group):
    """A group that ends so when what it prints cannot be written. A reader that has gone, as `head`, needs no words."""

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            try:
                return super().main(*args, **options)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
        except BrokenPipeError:
            discard()
            sys.exit(REFUSED)
        except OSError as error:
            if error.errno not in FULL:
                raise
            give_up(error)


def give_up(error: OSError) -> NoReturn:
    discard()
    words = f"the output cannot be written: {error.strerror}; what was drawn or made for it is not printed again"
    refuse(InvalidSetting(words), "--json" in sys.argv)


def discard() -> None:
    """What is still to be written; else the interpreter tries once more at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_open() -> None:
    """Raise `InvalidSetting` where nobody would see what is printed once."""
    if sys.stdout is None:
        raise InvalidSetting("the standard output is closed, so nothing was drawn or made; open it, as in > ids.txt")
