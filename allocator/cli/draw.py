"""`allocator next`."""

from __future__ import annotations

import sys

import click

from allocator.cli.options import command, show
from allocator.sync import Allocator


@click.command("next")
@click.argument("tag")
@click.option("-n", "count", type=int, default=1, show_default=True, help="How many ids.")
@click.option("--no-create", is_flag=True, help="Refuse a tag that does not exist, instead of making it.")
@command
def next_ids(tag: str, count: int, no_create: bool, url: str, as_json: bool) -> None:
    """Print the next ids of TAG, one a line.

    Exactly as many as are asked for are claimed, and none is wasted. They are one contiguous block.

    \b
    Examples:
        allocator next order
        allocator next order -n 5 --json
    """
    with Allocator(url, create_missing=not no_create) as ids:
        block = ids.reserve(tag, count)
    if as_json:
        show(True, {"tag": tag, "ids": [str(value) for value in block]}, "")
    else:
        sys.stdout.writelines(f"{value}\n" for value in block)
