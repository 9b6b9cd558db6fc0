"""`python -m benchmarks`, and `make bench`."""

from __future__ import annotations

from pathlib import Path

import click

from allocator.cli.output import Command, json_option, wants_json

from .program import SUITES, bench, into_page, tell


@click.command("benchmarks", cls=Command)
@click.argument("suites", nargs=-1, type=click.Choice(SUITES))
@click.option("--url", "urls", multiple=True, help="A database with the schema; several may be given.")
@click.option("--quick", is_flag=True, help="In about a minute, with a wider spread.")
@click.option("--servers", is_flag=True, help="Also on the servers that the tests take.")
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports/bench"),
    show_default=True,
    help="Where the table, the JSON and the plots are written.",
)
@click.option("--publish", is_flag=True, help="Put the table into docs/speed.md, and the plots into docs/figures.")
@json_option
def main(
    suites: tuple[str, ...],
    urls: tuple[str, ...],
    quick: bool,
    servers: bool,
    folder: Path,
    publish: bool,
) -> None:
    """How fast the ids come, beside what people would take instead.

    \b
    SUITES: all of them, or some of
        call      one call of each kind, and of other libraries that are installed
        claim     the database: a claim beside the bare driver, and beside its own counters
        latency   80,000 ids a second, claimed in advance and when needed
        http      the service beside a bare ASGI application
        insert    10,000 rows by SQLAlchemy, beside ids by hand and those of the database
        start     the import, and the memory of many tags

    The database needs the tables (allocator db upgrade). Tags and tables made for the run are taken away again.
    """
    words = " ".join(["make bench", *suites, *(["--quick"] if quick else [])])
    found, files = bench(suites, urls, quick=quick, servers=servers, folder=folder, command=words)
    tell(found, files, wants_json())
    if publish:
        into_page(found, Path("docs/speed.md"))
        for file in files:
            if file.suffix == ".svg":
                (Path("docs/figures") / file.name).write_text(file.read_text())


if __name__ == "__main__":
    main()
