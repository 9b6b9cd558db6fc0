"""`allocator doctor`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from allocator.cli.default_file import mark_opened
from allocator.cli.options import TIMEOUT, fleet_options, open_database
from allocator.cli.output import REFUSED, show
from allocator.doctor import examine, is_healthy
from allocator.rules.findings import Finding

if TYPE_CHECKING:
    from allocator.database.grants import Rights

ROLE = "allocator_service"


@click.command()
@click.option(
    "--grants",
    "role",
    is_flag=False,
    flag_value=ROLE,
    metavar="[ROLE]",
    help=f"Print the least rights that a service needs, as SQL for this role ({ROLE}), and look at nothing.",
)
@fleet_options
def doctor(role: str | None, urls: tuple[str, ...]) -> None:
    """Say what could give an id twice or stop ids, and how to mend it. Changes nothing.

    \b
    danger    an id could be given twice
    outage    ids could stop
    note      worth knowing; also what this user may not look at

    The exit code is 1 when there is a danger or an outage, and 0 when there are notes alone.
    """
    if role:
        print_grants(role, urls)
        return
    mark_opened()
    found = examine(list(urls), timeout=TIMEOUT)
    show({"findings": [finding_to_json(one) for one in found]}, "\n\n".join(map(text_of, found)) or "nothing was found")
    if not is_healthy(found):
        sys.exit(REFUSED)


def print_grants(role: str, urls: tuple[str, ...]) -> None:
    from allocator.database.grants import rights_for

    listed = []
    for url in urls:
        with open_database(url) as database:
            database.may_create = False
            listed.append((database.address.shown, rights_for(database, role)))
    grants = [{"database": where, **found._asdict()} for where, found in listed]
    show({"grants": grants}, "\n\n".join(script_of(found) for _, found in listed))


def script_of(found: Rights) -> str:
    parts = (
        ("what the service calls", found.service),
        ("for allocator tokens, by another user", found.tokens),
        ("for allocator db upgrade, by another user", found.upgrade),
    )
    return "\n\n".join("\n".join([f"-- {title}", *lines]) for title, lines in parts if lines)


def finding_to_json(one: Finding) -> dict[str, str]:
    return {
        "name": one.name,
        "severity": str(one.severity),
        "found": one.found,
        "mend": one.mend,
        "database": one.where,
    }


def text_of(one: Finding) -> str:
    where = f" ({one.where})" if one.where else ""
    return f"{one.severity:<6}  {one.name}{where}\n        {one.found}\n        mend: {one.mend}"
