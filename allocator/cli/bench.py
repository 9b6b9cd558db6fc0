"""`allocator bench`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from allocator.cli.options import URL_VARIABLE, as_error, from_environment, json_option, only_one

SUITES = ("call", "claim", "latency", "http", "insert", "start")


def program() -> Any:
    """The benchmarks: inside an installed package, beside it in a checkout."""
    try:
        return import_module("allocator.benchmarks.program")
    except ModuleNotFoundError as error:
        if error.name != "allocator.benchmarks":
            raise
        return import_module("benchmarks.program")


def own(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str | None:
    return only_one(context, parameter, given) if given or from_environment(URL_VARIABLE) is not None else None


@click.command()
@click.argument("suites", nargs=-1, type=click.Choice(SUITES))
@click.option("--quick", is_flag=True, help="In about a minute, with a wider spread.")
@click.option(
    "--url",
    multiple=True,
    callback=own,
    help="The database; else ALLOCATOR_DATABASE_URL, else a file made for the run.",
)
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("allocator-bench"),
    show_default=True,
    help="Where the table, the JSON and the plots are written.",
)
@json_option
@as_error
def bench(suites: tuple[str, ...], quick: bool, url: str | None, folder: Path, as_json: bool) -> None:
    """How fast the ids come here, beside what people would take instead.

    \b
    SUITES: all of them, or some of
        call      one call of each kind, and of other libraries that are installed
        claim     the database: a claim beside the bare driver, and beside its own counters
        latency   80,000 ids a second, claimed in advance and when needed
        http      the service beside a bare ASGI application
        insert    10,000 rows by SQLAlchemy, beside ids by hand and those of the database
        start     the import, and the memory of many tags

    The database needs the tables (allocator db upgrade). Tags and tables made for the run are taken away again. Plots
    need Matplotlib: pip install 'allocator[bench]'.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"--to names {folder}, which cannot be made: {error.strerror}") from None
    words = " ".join(["allocator bench", *suites, *(["--quick"] if quick else [])])
    benchmarks = program()
    found, files = benchmarks.bench(
        suites, [url] if url else [], quick=quick, servers=False, folder=folder, command=words
    )
    benchmarks.tell(found, files, as_json)
