"""`python -m benchmarks`, and `make bench`."""

from __future__ import annotations

from pathlib import Path

import click

from allocator.cli.output import Command, json_option, wants_json

from .program import SUITES, bench, into_page, tell


@click.command("benchmarks", cls=Command)
@click.argument("suites", nargs=-1, type=click.Choice(SUITES))
@click.option("--url", "urls", multiple=True, help="A database with the tables; repeatable.")
@click.option("--quick", is_flag=True, help="Take about a minute, with a wider spread.")
@click.option("--all", "all_suites", is_flag=True, help="Also measure the suites that no promised figure needs.")
@click.option("--servers", is_flag=True, help="Also measure the servers of the tests.")
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports/bench"),
    show_default=True,
    help="Folder for the table, the JSON and the plots.",
)
@click.option("--publish", is_flag=True, help="Write the table to docs/speed.md and the plots to docs/figures.")
@json_option
def main(
    suites: tuple[str, ...],
    urls: tuple[str, ...],
    quick: bool,
    all_suites: bool,
    servers: bool,
    folder: Path,
    publish: bool,
) -> None:
    """Measure the speed of the allocator compared with alternatives.

    \b
    SUITES: one or more of these; default those up to start
        call      one call of each kind, and of other installed libraries
        claim     a claim, the bare driver, and the database's own counters
        latency   80,000 ids per second, claimed in advance and on demand
        insert    10,000 rows by SQLAlchemy: our ids, explicit ids, the database's ids
        start     the import, the first id of a process, and the memory of many tags
        http      the service and a bare ASGI application
        waiting   numbers without gaps that are assigned after the commit, beside those drawn before it; needs
                  300 connections, or --quick
        bulk      10 million rows by COPY, a million by INSERT; ids of ours, of the database, UUIDv7

    The database needs the tables (allocator db upgrade). The run deletes its tags and tables at the end.
    """
    words = " ".join(["make bench", *suites, *(["--quick"] if quick else []), *(["--all"] if all_suites else [])])
    found, files = bench(
        SUITES if all_suites else suites, urls, quick=quick, servers=servers, folder=folder, command=words
    )
    tell(found, files, wants_json())
    if publish:
        into_page(found, Path("docs/speed.md"))
        for file in files:
            if file.suffix == ".svg":
                (Path("docs/figures") / file.name).write_text(file.read_text())


if __name__ == "__main__":
    main()
