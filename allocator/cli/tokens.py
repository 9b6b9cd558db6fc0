"""`allocator tokens create|list|revoke`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from allocator.cli.options import fleet_options, open_database, option
from allocator.cli.output import CommandGroup, show, show_for_pipe, show_rows
from allocator.schemes.token import ALL, DRAW, VERBS, Token
from allocator.service.token_administration import Tokens, home_of


@click.group(cls=CommandGroup)
def tokens() -> None:
    """Decide who may draw which ids over HTTP.

    Clients of `allocator serve` send a token. `create` prints it once, and the database keeps only its digest.
    """


@contextmanager
def open_tokens(urls: tuple[str, ...], creates: bool = False) -> Iterator[Tokens]:
    """Of a fleet, the tokens are in the database of its least slot in this list: give the URLs of the service."""
    with open_database(home_of(urls), creates=creates) as database:
        yield Tokens(database)


@tokens.command()
@click.argument("name")
@option(
    "--may", "verbs", multiple=True, type=click.Choice(VERBS), default=(DRAW,), help="Permitted action; repeatable."
)
@option("--tags", multiple=True, default=(ALL,), help="Permitted tags, or a scheme as @meteor; repeatable.")
@click.option("--days", type=float, help="Days until it expires. Default: never.")
@fleet_options
def create(name: str, urls: tuple[str, ...], **settings: Any) -> None:
    """Create a token and print its secret.

    The secret is stored nowhere and cannot be shown again.

    To replace a token, create one with another name, give its secret to the clients, and revoke the old one.

    \b
    Examples:
        allocator tokens create billing --tags 'coupon*' --tags order
        allocator tokens create worker --tags @snowflake
        allocator tokens create operations --may read --may administer
    """
    with open_tokens(urls, creates=True) as found:
        secret, token = found.create(name, **settings)
        about = f"This is token {token.number}, {token.name!r}, in {found.shown}; it is not shown again."
        show_for_pipe(to_row(token) | {"secret": secret}, secret, about)


@tokens.command("list")
@fleet_options
def list_tokens(urls: tuple[str, ...]) -> None:
    """Print all tokens that are not revoked."""
    with open_tokens(urls) as found:
        rows = [to_row(token) for token in found.list()]
    show_rows(rows, "token name may tags created_at expires_at expired")


@tokens.command()
@click.argument("number", type=int)
@fleet_options
def revoke(number: int, urls: tuple[str, ...]) -> None:
    """Revoke token NUMBER. Running services follow within seconds."""
    with open_tokens(urls) as found:
        found.revoke(number)
    show({"revoked": number}, f"token {number} is revoked")


def to_row(token: Token) -> dict[str, object]:
    return {
        "token": token.number,
        "name": token.name,
        "may": list(token.verbs),
        "tags": list(token.tags),
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "expired": not token.is_valid(datetime.now(UTC)),
    }
