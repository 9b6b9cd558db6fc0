"""The output of a command: text or JSON, tables, and errors in one sentence with exit code 1."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from operator import methodcaller
from typing import Any, NoReturn

import click

from allocator.errors import AllocatorError, InvalidSetting

REFUSED = 1
OWN_FAILURE = 125
"""Of a command that runs another one, as of `env` and `docker run`; 126 and 127: cannot start the other."""
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""Errors of an output that is full, broken or closed, which the user can mend; any other is a fault of ours."""
JSON = "allocator.json"
URL = re.compile(r"[a-z]\w*(\+\w+)?://")
NUMBER = re.compile(r"-|\d[\d,]*(\.\d+)?%?")


def keep_json(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    context.meta[JSON] = given


json_option = click.option(
    "--json",
    is_flag=True,
    is_eager=True,  # so that an error in another option is printed as JSON too
    callback=keep_json,
    expose_value=False,
    help="Print JSON, with ids as strings.",
)


def wants_json() -> bool:
    """Tell whether the running command has --json."""
    return bool(click.get_current_context().meta.get(JSON))


def show(value: Any, text: str) -> None:
    """Print `value` as JSON, or `text` for a person."""
    click.echo(json.dumps(value, default=methodcaller("isoformat")) if wants_json() else printable(text))


def show_for_pipe(value: Any, text: str, about: str) -> None:
    """As `show`, and say on stderr what the text is: it is alone on stdout."""
    show(value, text)
    if not wants_json():
        click.echo(about, err=True)


def printable(text: str) -> str:
    """Escape what would command the terminal: rows hold what any client of the database wrote."""
    return "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text)


def show_rows(rows: Sequence[Mapping[str, Any]], columns: str) -> None:
    """Print rows: whole as JSON, or as a table of these columns for a person."""
    show(rows, table(rows, columns))


def table(rows: Sequence[Mapping[str, Any]], columns: str) -> str:
    """Align fields of the rows below their names. `columns` names them; a format may follow, as in "tag used:.2%"."""
    fields = [one.partition(":")[::2] for one in columns.split()]
    aligned = [align([name, *(cell(row[name], style) for row in rows)]) for name, style in fields]
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))


def align(column: Sequence[str]) -> list[str]:
    """The heading and the cells of a column, in one width. Numbers stand on the right."""
    width = max(map(len, column))
    is_number = all(map(NUMBER.fullmatch, column[1:]))
    return [one.rjust(width) if is_number else one.ljust(width) for one in column]


def cell(value: Any, style: str = "") -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, list):
        value = ",".join(value)
    if isinstance(value, str):
        return printable(value).replace("\n", "\\n")
    return format(value, style or ("%Y-%m-%d %H:%M:%S %Z" if isinstance(value, datetime) else ""))


def tell_errors(errors: Sequence[AllocatorError]) -> None:
    """End a command that went on after these errors, if there are any."""
    for error in errors[1:]:
        click.echo(f"error: {error}", err=True)
    if errors:
        raise errors[0]


def refuse(error: AllocatorError, as_json: bool, code: int = REFUSED) -> NoReturn:
    message = str(error)
    if as_json:
        click.echo(json.dumps({"error": type(error).__name__, "message": message}), err=True)
    else:
        click.echo(f"error: {printable(message)}", err=True)
    sys.exit(code)


class Command(click.Command):
    """Turns an `AllocatorError` or a failed write of the output into one sentence and an exit code."""

    failure = REFUSED

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except AllocatorError as error:
            refuse(error, wants_json(), self.failure)

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.errno not in FULL:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python writes again when it exits
            message = f"cannot write the output: {error.strerror}; ids or tokens made for it are lost"
            refuse(InvalidSetting(message), "--json" in sys.argv)


class CommandGroup(Command, click.Group):
    """A group of commands. It takes no options of theirs, and says so."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(context, args)
        except click.NoSuchOption as error:
            usage = f"{context.command_path} COMMAND {error.option_name}"
            raise click.UsageError(f"{error.message} An option comes after its command: {usage}", context) from error

    def resolve_command(self, context: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, command, rest = super().resolve_command(context, args)
        if command is not None and has_bare_url(command, rest):
            raise click.UsageError(f"a URL is given by --url: {context.command_path} {name} --url URL", context)
        return name, command, rest


def has_bare_url(command: click.Command, words: Sequence[str]) -> bool:
    """Whether a command that takes its databases by --url alone is given one without it."""
    options = [one for one in command.params if isinstance(one, click.Option)]
    takes_others = any(one.metavar == "URL" or one.nargs == -1 for one in command.params)
    if takes_others or not any("--url" in one.opts for one in options):
        return False
    before_values = {name for one in options if not one.is_flag for name in one.opts}
    return any(URL.match(word) and before not in before_values for before, word in pairwise(["", *words]))
