"""`allocator serve`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from allocator.cli.options import F, option, urls_option
from allocator.schemes.shared.argument_checks import check_seconds
from allocator.service.settings import COMPATIBLE, ServeSettings

FILE = click.Path(exists=True, dir_okay=False)


def names(context: click.Context, parameter: click.Parameter, given: str | None) -> tuple[str, ...]:
    chosen = filter(None, map(str.strip, (given or "").split(",")))
    return tuple(click.Choice(COMPATIBLE).convert(name, parameter, context) for name in chosen)


class PortOption(click.Option):
    """A port. Kubernetes sets its variable to an address, if a Service in the namespace is called `allocator`."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        given = super().resolve_envvar_value(ctx)
        return None if given and given.startswith(("tcp://", "udp://", "sctp://")) else given


def setting(name: str, *names: str, **given: Any) -> Callable[[F], F]:
    """An option that has a variable of its name too."""
    variable = f"ALLOCATOR_{name.removeprefix('--').replace('-', '_').upper()}"
    return option(name, *names, envvar=variable, show_envvar=True, **given)


@click.command()
@setting("--host", default=ServeSettings.host, help="Address to listen on.")
@setting(
    "--port",
    cls=PortOption,
    type=click.IntRange(0, 65535),
    default=ServeSettings.port,
    help="Port to listen on; 0 for any free one.",
)
@setting("--timeout", type=float, default=ServeSettings.timeout, help="Seconds a request may wait for the database.")
@setting("--compat", callback=names, metavar="leaf,tinyid", help="Also serve the routes of these servers.")
@setting("--tokens-url", help="Database of the tokens.  [default: that of the least slot of --url]")
@setting("--open", "is_open", is_flag=True, help="Serve this machine without a token until one is created.")
@setting("--certificate", type=FILE, help="For HTTPS: file of the certificate chain.")
@setting("--key", type=FILE, help="For HTTPS: file of the private key.")
@setting(
    "--log-format",
    type=click.Choice(["json", "text"]),
    default=lambda: "text" if sys.stderr.isatty() else "json",
    show_default="text on a terminal, else json",
    help="Format of the logs.",
)
@urls_option
def serve(urls: tuple[str, ...], timeout: float, **settings: Any) -> None:
    """Give ids over HTTP to programs in any language.

    The API is described at /openapi.json, and a web console is at /. Clients need a token. With --open, clients on this
    machine need none until one is created. ALLOCATOR_DATABASE_URL_FILE may name a file that holds the URL of the
    database.

    \b
    Examples:
        allocator serve --open
        allocator tokens create billing --may draw --tags 'coupon*'
        allocator serve --host 0.0.0.0 --url postgresql+psycopg://…
    """
    from allocator.service.server import check_installed, logged
    from allocator.service.server import serve as run

    if (settings["certificate"] is None) != (settings["key"] is None):
        raise click.UsageError("--certificate and --key need each other")
    if not settings["host"].strip():
        raise click.UsageError("--host is empty, which would be every address; give it the address to listen on")
    check_installed()
    with logged(settings["log_format"]):
        run(ServeSettings(urls, timeout=check_seconds("timeout", timeout, 0.05), **settings))
