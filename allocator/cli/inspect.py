"""`allocator inspect`."""

from __future__ import annotations

import json

import click

from allocator.cli.options import as_error, json_option
from allocator.inspection import inspect_id
from allocator.schemes.inspect import SCHEMES, Reading
from allocator.schemes.wire import inspection_to_json


@click.command("inspect", context_settings={"ignore_unknown_options": True})
@click.argument("id_", metavar="ID")
@click.option("--scheme", type=click.Choice(SCHEMES), help="Read it as this, and nothing else.")
@click.option("--epoch", type=int, help="The epoch of the scheme: seconds for meteor, milliseconds for snowflake.")
@json_option
@as_error
def inspect_command(id_: str, scheme: str | None, epoch: int | None, as_json: bool) -> None:
    """Take ID apart: a number, 24 hex digits or a UUID.

    A number alone does not say which scheme made it, so every one that fits is shown, the likely ones first.

    \b
    Examples:
        allocator inspect 5016762319896585
        allocator inspect 4df2dcec2cdcd20936a8b817
        allocator inspect 1541815603606036480 --scheme snowflake
    """
    found = inspect_id(id_, scheme=scheme, epoch=epoch)
    click.echo(json.dumps(inspection_to_json(found)) if as_json else "\n\n".join(map(text, found.readings)))


def text(reading: Reading) -> str:
    lines = [f"{reading.scheme}: {'likely' if reading.likely else 'unlikely'}, {reading.why}"]
    lines += [f"  {name:<12} {value}" for name, value in reading.fields.items()]
    if reading.time:
        lines.append(f"  {'time':<12} {reading.time.isoformat(' ')}")
    return "\n".join([*lines, f"  it cannot tell {reading.cannot_tell}"])
