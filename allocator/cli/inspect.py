"""`allocator inspect`."""

from __future__ import annotations

import click

from allocator.cli.output import json_option, show
from allocator.generators.inspect_id import inspect_id
from allocator.schemes.formats.id_inspection import FORMATS, Reading, inspection_to_json


@click.command("inspect", context_settings={"ignore_unknown_options": True})
@click.argument("id_", metavar="ID")
@click.option("--epoch", type=int, help="Epoch of the id, in its unit: s or ms since 1970.")
@click.option("--layout", metavar="NAME", help=f"Read a number only as {', '.join(FORMATS)}.")
@json_option
def inspect(id_: str, epoch: int | None, layout: str | None) -> None:
    """Take ID apart: a number, 24 hex digits, a UUID, a TSID or a ULID.

    A number does not tell its scheme, so all schemes that fit are shown, likely ones first.

    \b
    Examples:
        allocator inspect 5016762319896585
        allocator inspect 4df2dcec2cdcd20936a8b817
        allocator inspect 175928847299117063 --layout discord
        allocator inspect 1541815603606036480 --layout snowflake --epoch 1288834974657
    """
    found = inspect_id(id_, epoch=epoch, layout=layout)
    show(inspection_to_json(found), "\n\n".join(map(text_of, found.readings)))


def text_of(reading: Reading) -> str:
    lines = [f"{reading.scheme}: {'likely' if reading.likely else 'unlikely'}, {reading.why}"]
    lines += [f"  {name:<12} {value}" for name, value in reading.fields.items()]
    if reading.time:
        lines.append(f"  {'time':<12} {reading.time.isoformat(' ')}")
    return "\n".join([*lines, f"  it cannot tell {reading.cannot_tell}"])
