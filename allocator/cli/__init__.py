"""The command line: a file for each group of commands.

A command gets its databases from a decorator of `options.py` and prints with `show` of `output.py`. An
`AllocatorError`, or output that cannot be written, ends it with one sentence on stderr and exit code 1. A usage error
is exit code 2.
"""

from __future__ import annotations

import click

import allocator
from allocator.cli.db import db
from allocator.cli.doctor import doctor
from allocator.cli.imports import import_counters
from allocator.cli.inspect import inspect_command
from allocator.cli.next import next_ids
from allocator.cli.nodes import nodes
from allocator.cli.number_commands import numbers
from allocator.cli.output import Group
from allocator.cli.public import public
from allocator.cli.serve import serve
from allocator.cli.shards import shards
from allocator.cli.tags import tags
from allocator.cli.takeover_commands import takeover
from allocator.cli.tokens import tokens
from allocator.cli.trace import trace_command
from allocator.cli.worker import worker

ENVIRONMENT = """\b
Environment:
  ALLOCATOR_DATABASE_URL  URL of the database; separate several by spaces
  ALLOCATOR_TOKEN         token, if --url is a service
  ALLOCATOR_PUBLIC_KEY    key of public ids
  ALLOCATOR_SHARD_HOSTS   more shard hosts that may receive the password
  To read one of the first three from a file, append _FILE to its name:
  ALLOCATOR_TOKEN_FILE=/run/secrets/token

\b
Completion, in ~/.bashrc (or zsh_source in ~/.zshrc):
  eval "$(_ALLOCATOR_COMPLETE=bash_source allocator)"

Exit codes: 0 success, 1 error, 2 wrong usage; worker run has its own.
"""


@click.group(
    cls=Group, epilog=ENVIRONMENT, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(allocator.__version__, prog_name="allocator")
def main() -> None:
    """Unique 64-bit ids out of the SQL database that you already run.

    \b
    Try it without a server:
      allocator next order -n 5            five ids, from ./allocator.db
      allocator next --scheme meteor       an id that holds a time and a node
      allocator inspect 5016762319896585   the fields of an id
    With a database server:
      export ALLOCATOR_DATABASE_URL=postgresql+psycopg://user:password@host/ids
      allocator db upgrade                 create the tables, once per release
      allocator next order -n 5
      allocator tags list

    Every command takes --json. Commands that need a database take --url, some
    of them once per shard.
    """


for command in (
    next_ids,
    inspect_command,
    trace_command,
    public,
    tags,
    numbers,
    import_counters,
    takeover,
    nodes,
    worker,
    shards,
    serve,
    tokens,
    db,
    doctor,
):
    main.add_command(command)
