"""`allocator tokens create|rotate|list|revoke`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from allocator.backend import databases_at
from allocator.cli.db import QUICK
from allocator.cli.options import fleet_command, shard_hosts, show, table
from allocator.cli.output import check_open
from allocator.rules.token import DRAW, SCHEMES, VERBS, Token
from allocator.service.token_admin import Tokens

HEADINGS = ("token", "name", "may", "tags", "schemes", "ids/s", "requests/s", "created", "expires")


@click.group()
def tokens() -> None:
    """Create, rotate, list and revoke the tokens of the service."""


@contextmanager
def opened(urls: tuple[str, ...]) -> Iterator[Tokens]:
    with databases_at(urls, QUICK, shard_hosts()) as databases:
        yield Tokens(databases.lead)


@tokens.command()
@click.argument("name")
@click.option("--may", multiple=True, type=click.Choice(VERBS), default=(DRAW,), show_default=True, help="What for.")
@click.option("--tags", multiple=True, help="Which tags, as in 'order-*'. Without --tags and --schemes: everything.")
@click.option("--schemes", multiple=True, type=click.Choice(SCHEMES), help="Which ids and numbers without a tag.")
@click.option("--ids-rate", type=int, metavar="N", help="Ids a second at most.")
@click.option("--requests-rate", type=int, metavar="N", help="Requests a second at most.")
@click.option("--days", type=float, help="After how many days it expires; never, if not given.")
@fleet_command
def create(
    name: str,
    may: tuple[str, ...],
    tags: tuple[str, ...],
    schemes: tuple[str, ...],
    ids_rate: int | None,
    requests_rate: int | None,
    days: float | None,
    urls: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a token, and print it: it is stored nowhere, and cannot be shown again.

    Two of one name may be valid at a time: see `rotate`. The token with the name `anonymous` says what may be done
    without one, and its secret is of no use.

    \b
    Examples:
        allocator tokens create billing --tags 'invoice*' --tags order
        allocator tokens create worker --schemes snowflake
        allocator tokens create operations --may read --may administer
    """
    check_open()
    if not tags and not schemes:
        tags, schemes = ("*",), SCHEMES
    scope: dict[str, Any] = {"verbs": may, "tags": tags, "schemes": schemes}
    with opened(urls) as found:
        secret, token = found.create(name, **scope, ids_rate=ids_rate, requests_rate=requests_rate, days=days)
        tell(secret, token, found, as_json)


@tokens.command()
@click.argument("number", type=int)
@fleet_command
def rotate(number: int, urls: tuple[str, ...], as_json: bool) -> None:
    """Make and print another token that is good for the same as the one with this NUMBER; then revoke that one."""
    check_open()
    with opened(urls) as found:
        secret, token = found.rotate(number)
        tell(secret, token, found, as_json)


@tokens.command("list")
@fleet_command
def list_tokens(urls: tuple[str, ...], as_json: bool) -> None:
    """Print the tokens that were not revoked."""
    with opened(urls) as found:
        rows = found.list()
    show(as_json, [described(token) for token in rows], table([HEADINGS, *map(cells, rows)], numbers={0, 5, 6}))


@tokens.command()
@click.argument("number", type=int)
@fleet_command
def revoke(number: int, urls: tuple[str, ...], as_json: bool) -> None:
    """Revoke the token with this NUMBER; services that run know within seconds."""
    with opened(urls) as found:
        found.revoke(number)
    show(as_json, {"revoked": number}, f"token {number} is revoked")


def tell(secret: str, token: Token, tokens: Tokens, as_json: bool) -> None:
    """The secret alone on stdout, for a pipe; what a person should know beside it."""
    show(as_json, described(token) | {"secret": secret}, secret)
    if not as_json:
        click.echo(f"This is token {token.number}, {token.name!r}, in {tokens.shown}; it is not shown again.", err=True)


def described(token: Token) -> dict[str, object]:
    return {
        "token": token.number,
        "name": token.name,
        "may": list(token.verbs),
        "tags": list(token.tags),
        "schemes": list(token.schemes),
        "ids_rate": token.ids_rate,
        "requests_rate": token.requests_rate,
        "created_at": token.created_at.isoformat(),
        "expires_at": token.expires_at and token.expires_at.isoformat(),
    }


def cells(token: Token) -> tuple[str, ...]:
    return (
        str(token.number),
        token.name,
        ",".join(token.verbs),
        ",".join(token.tags),
        ",".join(token.schemes),
        str(token.ids_rate or ""),
        str(token.requests_rate or ""),
        f"{token.created_at:%Y-%m-%d %H:%M}",
        expiry(token),
    )


def expiry(token: Token) -> str:
    if token.expires_at is None:
        return "never"
    return f"{token.expires_at:%Y-%m-%d %H:%M}" + ("" if token.is_valid(datetime.now(UTC)) else " (expired)")
