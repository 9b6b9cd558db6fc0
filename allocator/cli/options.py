"""The options that commands share, and the databases that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from allocator.cli.output import json_option
from allocator.database.address import BETWEEN_COMMAS, address_of
from allocator.database.store import Database
from allocator.errors import InvalidDatabase
from allocator.remote.service_address import is_address
from allocator.schemes.slots import check_list
from allocator.sync import Allocator

F = TypeVar("F", bound=Callable[..., Any])

URL_VARIABLE = "ALLOCATOR_DATABASE_URL"
TOKEN_VARIABLE = "ALLOCATOR_TOKEN"  # noqa: S105  # the name of a variable
ROWS_ZONE = "zone of rows"
"""No variable: `manage.py` alone gives it, which knows how Django keeps datetimes."""

BETWEEN_URLS = re.compile(r"\s+(?=[a-zA-Z]\w*(?:\+\w+)?://)")
"""Splits the variable only before a URL, because a path may hold blanks."""

NEEDS_NO_URL = "objectid"
"""The scheme whose ids come from no database."""

TIMEOUT = 10.0


def options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Combine options into one decorator, in the order of --help."""

    def add(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return add


option = partial(click.option, show_default=True)


def from_environment(variable: str) -> str | None:
    """Read a variable, or the file named by the variable with `_FILE` appended.

    `manage.py` gives its settings by the names of variables: in variables the commands of users would find them.
    """
    settings: Mapping[str, str] = click.get_current_context().obj or {}
    if variable in settings:
        return settings[variable]
    path = os.environ.get(f"{variable}_FILE")
    if path is None:
        return os.environ.get(variable)
    if variable in os.environ:
        raise click.UsageError(f"{variable} and {variable}_FILE exclude each other; unset one")
    try:
        found = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise click.UsageError(f"cannot read {path}, named by {variable}_FILE: {error.strerror}") from None
    if not found:
        raise click.UsageError(f"{path}, named by {variable}_FILE, is empty")
    return found


def parse_urls(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The URLs of --url, else of the variable. An empty one is a mistake of a script or a deployment."""
    if not all(url.strip() for url in given):
        raise click.UsageError("--url is empty; give it the URL of a database")
    variable = None if given else from_environment(URL_VARIABLE)
    if variable is not None and not variable.strip():
        raise click.UsageError(f"{URL_VARIABLE} is empty; set it to the URL of a database")
    urls = given or tuple(BETWEEN_URLS.split(variable.strip()) if variable else ())
    if any(map(BETWEEN_COMMAS.search, urls)):
        mend = f"separate them by blanks in {URL_VARIABLE}" if variable else "give --url once for each"
        raise click.UsageError(f"several URLs have commas between them; {mend}")
    if not urls and context.params.get("scheme") != NEEDS_NO_URL:  # without --url, click comes here after --scheme
        raise click.UsageError(
            f"no database is named; give its URL by --url or {URL_VARIABLE}, such as --url sqlite:///ids.db"
        )
    return urls


def parse_url(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str:
    return only_one(parse_urls(context, parameter, given))


def only_one(urls: tuple[str, ...]) -> str:
    first, *more = urls
    if more:
        raise click.UsageError(f"this command takes one database, got {1 + len(more)}; run it once for each --url")
    return first


FALLBACKS = f"[env var: {URL_VARIABLE}]"
"""In the help text only: click's own `envvar` would split the variable at every blank."""
ONE_URL = f"URL of the database.  {FALLBACKS}"
URLS = f"URL of the database; once per slot of a fleet.  {FALLBACKS}"
urls_option = click.option("--url", "urls", multiple=True, callback=parse_urls, help=URLS)

database_options = options(click.option("--url", multiple=True, callback=parse_url, help=ONE_URL), json_option)
fleet_options = options(urls_option, json_option)


def open_allocator(urls: tuple[str, ...], creates: bool = False) -> Allocator:
    """Open the allocator of a command. One that `creates` may make the file of a database, and tags."""
    if not creates:
        require_files(*urls)
    if is_address(urls[0]):
        return Allocator(list(urls), token=from_environment(TOKEN_VARIABLE), create_missing=creates)
    return Allocator(shards=urls, create_missing=creates)


@contextmanager
def open_database(url: str, timeout: float = TIMEOUT, creates: bool = False) -> Iterator[Database]:
    if not creates:
        require_files(url)
    with closing(Database(url, timeout)) as database:
        yield database


@contextmanager
def open_databases(urls: tuple[str, ...], timeout: float = TIMEOUT, creates: bool = False) -> Iterator[list[Database]]:
    """Databases one by one: a command that looks at each. Several must be slots of one fleet."""
    with ExitStack() as stack:
        found = [stack.enter_context(open_database(url, timeout, creates)) for url in urls]
        check_list([(one.shown, one.address.word) for one in found])
        yield found


def require_files(*urls: str) -> None:
    """Refuse a missing database file: a command that draws no ids creates no file. That of a fleet is never created."""
    for url in urls:
        address = None if is_address(url) else address_of(url)
        file = address.file if address and not address.word else None
        if file is not None and not Path(file).exists():
            raise InvalidDatabase(
                f"there is no file {Path(file).absolute()}; draw an id to create it, or name another database with "
                f"--url or {URL_VARIABLE}"
            )
