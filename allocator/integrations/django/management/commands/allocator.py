"""`manage.py allocator`: the command line, on the databases of Django's settings."""

from __future__ import annotations

from argparse import REMAINDER
from typing import Any

from django.core.management.base import BaseCommand, CommandError  # type: ignore[import-untyped]
from django.db import DEFAULT_DB_ALIAS, connections  # type: ignore[import-untyped]

from allocator.cli import main
from allocator.cli.options import ROWS_ZONE, TOKEN_VARIABLE, URL_VARIABLE
from allocator.database.address import Address, address_of
from allocator.database.django.database_setting import url_of_rows
from allocator.errors import AllocatorError
from allocator.integrations.django.ids import arguments, own_databases
from allocator.remote.service_address import addresses
from allocator.schemes.slots import ARGUMENT


class Command(BaseCommand):  # type: ignore[misc]
    help = "Run `allocator` on the database of the settings, for example: manage.py allocator tags list"
    requires_system_checks = ()

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument(
            "words", nargs=REMAINDER, metavar="...", help="arguments of allocator; try: manage.py allocator next --help"
        )

    def handle(self, *, words: list[str], **options: Any) -> None:
        try:
            given = variables_of_numbers() if words[:1] == ["numbers"] else variables()
        except AllocatorError as error:
            raise CommandError(str(error)) from None
        try:
            main(words, prog_name="manage.py allocator", obj=given)
        except SystemExit as end:
            if end.code:
                raise


def variables() -> dict[str, str]:
    """The settings, by the environment variables of the command line that they replace."""
    options = arguments()
    urls = addresses(options.get("database")) or [written(address_of(one)) for one in own_databases()]
    found = {URL_VARIABLE: " ".join(urls), TOKEN_VARIABLE: options.get("token")}
    return {name: value for name, value in found.items() if value}


def variables_of_numbers() -> dict[str, Any]:
    """Numbers without gaps are in the database of the rows, whatever ids come from."""
    connection = connections[DEFAULT_DB_ALIAS]
    url = written(address_of(url_of_rows(connection.vendor, connection.settings_dict)))
    return {URL_VARIABLE: url, ROWS_ZONE: connection.timezone}


def written(address: Address) -> str:
    """The URL with its password, and with its slot."""
    url = address.url.update_query_dict({ARGUMENT: str(address.word)} if address.word else {})
    return url.render_as_string(hide_password=False)
