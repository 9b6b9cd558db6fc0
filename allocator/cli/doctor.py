"""`allocator doctor`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from allocator.cli.db import QUICK, opened
from allocator.cli.options import REFUSED, fleet_command, show

if TYPE_CHECKING:
    from allocator.database.grants import Rights
    from allocator.rules.findings import Finding

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
@fleet_command
def doctor(role: str | None, urls: tuple[str, ...], as_json: bool) -> None:
    """Say what could give an id twice or stop ids, and how to mend it. Changes nothing.

    \b
    danger    an id could be given twice
    outage    ids could stop
    note      worth knowing; also what this user may not look at

    The exit code is 1 when there is a danger or an outage, and 0 when there are notes alone.
    """
    if role:
        print_grants(role, urls, as_json)
        return
    from allocator.doctor import examine, is_healthy

    found = examine(list(urls), timeout=QUICK)
    show(as_json, {"findings": [described(one) for one in found]}, "\n\n".join(map(told, found)) or "nothing was found")
    if not is_healthy(found):
        sys.exit(REFUSED)


def print_grants(role: str, urls: tuple[str, ...], as_json: bool) -> None:
    from allocator.database.grants import rights_for

    listed = []
    for url in urls:
        with opened(url, QUICK) as database:
            database.may_create = False
            listed.append((database.address.shown, rights_for(database, role)))
    grants = [{"database": where, **found._asdict()} for where, found in listed]
    show(as_json, {"grants": grants}, "\n\n".join(scripted(found) for _, found in listed))


def scripted(found: Rights) -> str:
    parts = (
        ("what the service calls", found.service),
        ("for allocator tokens, by another user", found.tokens),
        ("for allocator db upgrade, by another user", found.upgrade),
    )
    return "\n\n".join("\n".join([f"-- {title}", *lines]) for title, lines in parts if lines)


def described(one: Finding) -> dict[str, str]:
    return {
        "name": one.name,
        "severity": str(one.severity),
        "found": one.found,
        "mend": one.mend,
        "database": one.where,
    }


def told(one: Finding) -> str:
    where = f" ({one.where})" if one.where else ""
    return f"{one.severity:<6}  {one.name}{where}\n        {one.found}\n        mend: {one.mend}"
