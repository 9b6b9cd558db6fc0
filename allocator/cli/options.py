"""What all commands share: the database, the form of the output, and how an error ends them."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Container, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import click

from allocator.errors import AllocatorError, InvalidSetting
from allocator.rules.hosts import Hosts, hosts_from
from allocator.sync import Allocator

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_URL = "sqlite:///allocator.db"
REFUSED = 1

URL_VARIABLE = "ALLOCATOR_DATABASE_URL"
TOKEN_VARIABLE = "ALLOCATOR_TOKEN"  # noqa: S105  # the name of a variable


SEVERAL = re.compile(r"\s+(?=[a-z]\w*(?:\+\w+)?://)")
"""Between two URLs of the variable; a path may have blanks."""


def urls_of(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    urls = tuple(filter(None, given))
    variable = from_environment(URL_VARIABLE)
    if not urls and variable is not None and not variable.strip():
        # a deployment gone wrong, and no wish for a file in the current folder
        raise click.UsageError(f"{URL_VARIABLE} is set and empty; give it a database, or unset it")
    return urls or tuple(SEVERAL.split(variable.strip()) if variable else [DEFAULT_URL])


def from_environment(variable: str) -> str | None:
    """The value of a variable, or of the file that the variable with `_FILE` behind its name names."""
    path = os.environ.get(f"{variable}_FILE")
    if path is None:
        return os.environ.get(variable)
    if variable in os.environ:
        raise click.UsageError(f"{variable} and {variable}_FILE exclude each other")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise click.UsageError(f"{variable}_FILE names {path}, which cannot be read: {error.strerror}") from None


def one_of(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str:
    return only_one(urls_of(context, parameter, given))


def only_one(urls: tuple[str, ...]) -> str:
    first, *more = urls
    if more:
        raise click.UsageError(f"this needs one database, got {1 + len(more)}; give each its own command, with --url")
    return first


HELP = f"The database; else ALLOCATOR_DATABASE_URL, else {DEFAULT_URL}, made on first use."
url_option = click.option("--url", multiple=True, callback=one_of, help=HELP)
urls_option = click.option("--url", "urls", multiple=True, callback=urls_of, help=f"{HELP} Once for each shard.")
HOSTS_VARIABLE = "ALLOCATOR_SHARD_HOSTS"
HOSTS = "allocator.shard_hosts"


def keep_hosts(context: click.Context, parameter: click.Parameter, given: str | None) -> None:
    try:
        context.meta[HOSTS] = hosts_from(given or None)
    except InvalidSetting as error:
        raise click.BadParameter(str(error)) from None


def shard_hosts() -> Hosts:
    """Those of the command that runs."""
    context = click.get_current_context(silent=True)
    return tuple(context.meta.get(HOSTS, ())) if context else ()


hosts_option = click.option(
    "--shard-hosts",
    envvar=HOSTS_VARIABLE,
    metavar="PATTERNS",
    callback=keep_hosts,
    expose_value=False,
    help="Hosts of shards without a --url that may get the same password, as in 'db-*.internal,10.0.0.?'.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON; ids are strings there.")


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Adds --url and --json, and turns an `AllocatorError` into one sentence and exit code 1."""
    return url_option(json_option(as_error(function)))


def fleet_command(function: Callable[P, None]) -> Callable[P, None]:
    """As `command`, for several databases that serve ids together."""
    return urls_option(hosts_option(json_option(as_error(function))))


def ids_of(urls: tuple[str, ...], create_missing: bool = True) -> Allocator:
    if urls[0].startswith(("http://", "https://")):
        return Allocator(list(urls), token=from_environment(TOKEN_VARIABLE), create_missing=create_missing)
    if len(urls) == 1:
        return Allocator(urls[0], create_missing=create_missing, shard_hosts=shard_hosts())
    return Allocator(shards=urls, create_missing=create_missing, shard_hosts=shard_hosts())


def as_error(function: Callable[P, None]) -> Callable[P, None]:
    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except AllocatorError as error:
            refuse(error, bool(kwargs.get("as_json")))

    return run


def refuse(error: AllocatorError, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"error": type(error).__name__, "message": str(error)}), err=True)
    else:
        click.echo(f"error: {error}", err=True)
    sys.exit(REFUSED)


def show(as_json: bool, value: Any, text: str) -> None:
    """Print `value` as JSON, or `text` for a person."""
    click.echo(json.dumps(value) if as_json else text)


def table(rows: Sequence[Sequence[str]], numbers: Container[int] = ()) -> str:
    """Rows in columns, the first of them headings; those of `numbers` stand at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def aligned(column: int, cell: str) -> str:
        return cell.rjust(widths[column]) if column in numbers else cell.ljust(widths[column])

    return "\n".join("  ".join(aligned(*pair) for pair in enumerate(row)).rstrip() for row in rows)
