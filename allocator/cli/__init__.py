"""The command line: `allocator next`, `allocator tags`, `allocator db`.

Exit codes: 0, or 1 when something was refused (one sentence on stderr), or 2 when the command was not understood.
"""

from __future__ import annotations

import click

import allocator
from allocator.cli.db import db
from allocator.cli.draw import next_ids
from allocator.cli.tags import tags


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(allocator.__version__, prog_name="allocator")
def main() -> None:
    """Unique 64-bit ids out of the SQL database that you already run.

    \b
    Try it, with nothing set up:
        allocator next order -n 5            five ids, from ./allocator.db
    Then with a server:
        export ALLOCATOR_DATABASE_URL=postgresql+psycopg://user:password@host/name
        allocator db upgrade                 make or update the tables, once per release
        allocator next order -n 5
        allocator tags list

    Every command takes --url and --json.
    """


main.add_command(next_ids)
main.add_command(tags)
main.add_command(db)
