"""What all commands share: the database, the form of the output, and how an error ends them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

import click

from allocator.errors import AllocatorError

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_URL = "sqlite:///allocator.db"
REFUSED = 1

URL_VARIABLE = "ALLOCATOR_DATABASE_URL"


def not_empty(context: click.Context, parameter: click.Parameter, url: str | None) -> str:
    """A variable that is set and empty is a deployment gone wrong, and no wish for a file in the current folder."""
    if not url and os.environ.get(URL_VARIABLE) == "":
        raise click.UsageError(f"{URL_VARIABLE} is set and empty; give it a database, or unset it")
    return url or DEFAULT_URL


url_option = click.option(
    "--url",
    envvar=URL_VARIABLE,
    callback=not_empty,
    help=f"The database; else ALLOCATOR_DATABASE_URL, else {DEFAULT_URL}, made on first use.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON; ids are strings there.")


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Adds --url and --json, and turns an `AllocatorError` into one sentence and exit code 1."""
    return url_option(json_option(as_error(function)))


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
