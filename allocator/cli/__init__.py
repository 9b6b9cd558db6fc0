"""The command line: a file for each group of commands.

Exit codes: 0, or 1 when something was refused or could not be printed (one sentence on stderr), or 2 when the
command was not understood.
"""

from __future__ import annotations

import click

import allocator
from allocator.cli.db import db
from allocator.cli.doctor import doctor
from allocator.cli.draw import next_ids
from allocator.cli.imports import import_counters
from allocator.cli.inspect import inspect_command
from allocator.cli.nodes import nodes
from allocator.cli.output import Commands
from allocator.cli.public import public
from allocator.cli.serve import serve
from allocator.cli.shards import shards
from allocator.cli.tags import tags
from allocator.cli.tokens import tokens
from allocator.cli.trace import trace_command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(allocator.__version__, prog_name="allocator")
def main() -> None:
    """Unique 64-bit ids out of the SQL database that you already run.

    \b
    Try it, with nothing set up:
        allocator next order -n 5            five ids, from ./allocator.db
        allocator next --scheme meteor       an id with a time and a node in it
        allocator inspect 5016762319896585   what an id says
    Then with a server:
        export ALLOCATOR_DATABASE_URL=postgresql+psycopg://user:password@host/name
        allocator db upgrade                 make or update the tables, once per release
        allocator next order -n 5
        allocator tags list

    Every command takes --json, and those that need a database take --url, some of them once for each shard.
    """


main.add_command(next_ids)
main.add_command(inspect_command)
main.add_command(trace_command)
main.add_command(public)
main.add_command(tags)
main.add_command(import_counters)
main.add_command(nodes)
main.add_command(shards)
main.add_command(serve)
main.add_command(tokens)
main.add_command(db)
main.add_command(doctor)
