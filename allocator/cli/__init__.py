"""The command line: a file for each group of commands.

A command gets its databases from a decorator of `options.py` and prints with `show` of `output.py`. An
`AllocatorError`, or output that cannot be written, ends it with one sentence on stderr and exit code 1. A usage error
is exit code 2.
"""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Any

import click

import allocator
from allocator.cli.output import CommandGroup

ENVIRONMENT = """\b
Environment:
  ALLOCATOR_DATABASE_URL  URL of the database; separate several by spaces
  ALLOCATOR_TOKEN         token, if --url is a service
  ALLOCATOR_PUBLIC_KEY    key of public ids
  To read one of the first three from a file, append _FILE to its name:
  ALLOCATOR_TOKEN_FILE=/run/secrets/token

\b
Completion, in ~/.bashrc (or zsh_source in ~/.zshrc):
  eval "$(_ALLOCATOR_COMPLETE=bash_source allocator)"

Messages name commands without --url: use the same --url, or the variable.

Exit codes: 0 success, 1 error, 2 wrong usage; worker run has its own.
"""


NAMES = ("next", "inspect", "public", "tags", "worker", "shards", "serve", "tokens", "db", "doctor")
HOMES = {name: name for name in NAMES} | {"numbers": "number_commands"}


class Commands(UserDict[str, Any]):
    """Imports a command when it is looked up: all of them take longer than the first id of `allocator next`."""

    def __getitem__(self, name: str) -> click.Command:
        found: click.Command = getattr(import_module(f"{__name__}.{self.data[name]}"), name)
        return found


@click.group(
    cls=CommandGroup,
    commands=Commands(HOMES),
    epilog=ENVIRONMENT,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(allocator.__version__, prog_name="allocator")
def main() -> None:
    """Unique 64-bit ids out of the SQL database that you already run.

    \b
    Try it in a file, without a server:
      export ALLOCATOR_DATABASE_URL=sqlite:///ids.db
      allocator next order -n 5            five ids
      allocator next --scheme meteor       an id that holds a time and a node
      allocator inspect 5016762319896585   the fields of an id
    With a database server:
      export ALLOCATOR_DATABASE_URL=postgresql+psycopg://user:password@host/ids
      allocator db upgrade                 create the tables, once per release
      allocator next order -n 5
      allocator tags list

    Commands that print take --json. Commands that need a database take --url,
    some of them once per slot of a fleet.
    """
