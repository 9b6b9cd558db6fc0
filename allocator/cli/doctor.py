"""`allocator doctor`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict

import click

from allocator.cli.options import TIMEOUT, fleet_options
from allocator.cli.output import REFUSED, show
from allocator.doctor import examine, is_healthy
from allocator.schemes.shared.findings import Finding


@click.command()
@fleet_options
def doctor(urls: tuple[str, ...]) -> None:
    """Find what could repeat ids or stop them, and how to fix it. Changes nothing.

    \b
    danger    an id could be issued twice
    outage    ids could stop
    note      worth knowing; also: checks that this user may not run

    The exit code is 1 if there is a danger or an outage, else 0.
    """
    report(examine(list(urls), timeout=TIMEOUT))


def report(found: Sequence[Finding]) -> None:
    show({"findings": [finding_to_json(one) for one in found]}, "\n\n".join(map(text_of, found)) or "no findings")
    if not is_healthy(found):
        sys.exit(REFUSED)


def finding_to_json(one: Finding) -> dict[str, str]:
    about = asdict(one)
    return {"database": about.pop("where"), **about}


def text_of(one: Finding) -> str:
    where = f" ({one.where})" if one.where else ""
    return f"{one.severity:<6}  {one.name}{where}\n        {one.found}\n        fix: {one.mend}"
