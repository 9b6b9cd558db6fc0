"""`python -m benchmarks` in a checkout: `allocator bench`, and on the servers that the tests take too."""

from __future__ import annotations

from pathlib import Path

import click

from allocator.cli.bench import SUITES
from allocator.cli.options import as_error

from .program import bench, into_readme, tell


@click.command()
@click.argument("suites", nargs=-1, type=click.Choice(SUITES))
@click.option("--url", "urls", multiple=True, help="A database with the schema; several may be given.")
@click.option("--quick", is_flag=True, help="In about a minute, with a wider spread.")
@click.option("--servers", is_flag=True, help="Also on the servers that the tests take.")
@click.option("--to", "folder", type=click.Path(path_type=Path), default=Path("reports/bench"), show_default=True)
@click.option("--readme", is_flag=True, help="Put the table into README.md, and the plots into docs/figures.")
@as_error
def main(
    suites: tuple[str, ...], urls: tuple[str, ...], quick: bool, servers: bool, folder: Path, readme: bool
) -> None:
    """How fast the ids come, beside what people would take instead."""
    found, files = bench(suites, urls, quick=quick, servers=servers, folder=folder, command="make bench")
    tell(found, files)
    if readme:
        into_readme(found, Path("README.md"))
        for file in files:
            if file.suffix == ".svg":
                (Path("docs/figures") / file.name).write_text(file.read_text())


main()
