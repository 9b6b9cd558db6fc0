"""`allocator serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from allocator.cli.options import TOKEN_VARIABLE, URL_VARIABLE, F, option, urls_option
from allocator.cli.public import KEY_VARIABLE
from allocator.database.connection import GUARD_RESTARTS
from allocator.errors import InvalidSetting
from allocator.schemes.shared.argument_checks import check_seconds
from allocator.service.settings import COMPATIBLE, ServeSettings

PORT_VARIABLE = "ALLOCATOR_PORT"
FROM_FILES = (URL_VARIABLE, TOKEN_VARIABLE, KEY_VARIABLE)
KNOWN = frozenset((GUARD_RESTARTS, *FROM_FILES, *(f"{name}_FILE" for name in FROM_FILES)))
"""Our variables that are not those of options."""


def names(context: click.Context, parameter: click.Parameter, given: str | None) -> tuple[str, ...]:
    chosen = tuple(name.strip() for name in (given or "").split(",") if name.strip())
    for name in chosen:
        if name not in COMPATIBLE:
            raise click.UsageError(f"--compat must be {' or '.join(COMPATIBLE)}, got {name!r}")
    return chosen


class PortOption(click.Option):
    """A port. Kubernetes sets its variable to an address, if a Service in the namespace is called `allocator`."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        given = super().resolve_envvar_value(ctx)
        return None if given and is_address_of_service(given) else given


def is_address_of_service(value: str) -> bool:
    return value.startswith(("tcp://", "udp://", "sctp://"))


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
@setting(
    "--uds",
    default=ServeSettings.uds,
    show_default=False,
    metavar="PATH",
    help="Unix socket, for this machine only, in place of --host and --port.",
)
@setting("--timeout", type=float, default=ServeSettings.timeout, help="Seconds a request may wait for the database.")
@setting("--compat", callback=names, metavar="leaf,tinyid", help="Also serve the routes of these servers.")
@setting("--tokens-url", help="Database of the tokens.  [default: that of the least slot of --url]")
@setting("--open", "is_open", is_flag=True, help="Serve this machine without a token until one is created.")
@setting("--certificate", type=Path, help="For HTTPS: file of the certificate chain.")
@setting("--key", type=Path, help="For HTTPS: file of the private key.")
@setting(
    "--log-format",
    type=click.Choice(["json", "text"]),
    default=lambda: "text" if sys.stderr.isatty() else "json",
    show_default="text on a terminal, else json",
    help="Format of the logs.",
)
@urls_option
def serve(urls: tuple[str, ...], timeout: float, certificate: Path | None, key: Path | None, **settings: Any) -> None:
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

    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key need each other")
    if not settings["host"].strip():
        raise click.UsageError("--host is empty, which would be every address; give it the address to listen on")
    settings["uds"] = settings["uds"].removeprefix("unix://")  # as clients name it
    check_place(settings["uds"], certificate)
    check_installed()
    with logged(settings["log_format"]):
        settings |= {"certificate": file(certificate), "key": file(key)}
        given = ServeSettings(urls, timeout=check_seconds("timeout", timeout, 0.05), **settings)
        run(given, unknown_variables(os.environ))


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """The names that look like ours: misspelt, or of another version. And the port, if it is an address."""
    known = KNOWN.union(str(parameter.envvar) for parameter in serve.params)
    found = [name for name in environment if name.startswith("ALLOCATOR_") and name not in known]
    port = environment.get(PORT_VARIABLE, "")
    return sorted([*found, f"{PORT_VARIABLE}={port}"] if is_address_of_service(port) else found)


def check_place(uds: str, certificate: Path | None) -> None:
    """A Unix socket replaces the host, the port and the certificate, and variables such as those of our image."""
    source = click.get_current_context().get_parameter_source
    others = [name for name in ("host", "port") if source(name) is ParameterSource.COMMANDLINE]
    if source("uds") is ParameterSource.COMMANDLINE and not uds.strip():
        raise click.UsageError("--uds is empty; give it the path of a socket")
    if uds and (others or certificate):
        raise click.UsageError(f"--uds and --{(others or ['certificate'])[0]} exclude each other")


def file(path: Path | None) -> str | None:
    if path is not None and not path.is_file():
        raise InvalidSetting(f"there is no file {path}")
    return str(path) if path else None
