"""`allocator worker list|run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from allocator.cli.options import fleet_options, open_allocator, open_databases, option, urls_option
from allocator.cli.output import OWN_FAILURE, Command, CommandGroup, show, table, tell_errors
from allocator.errors import InvalidSetting
from allocator.fleet.commands import holders_in
from allocator.schemes.meteor import Node
from allocator.schemes.worker_number_lease import SECONDS, NumberRow, Space

NODES = 100


@click.group(cls=CommandGroup)
def worker() -> None:
    """Give a process a number that no other process has.

    Snowflake libraries need one. `run` leases it, renews the lease while the program runs, and ends the program before
    another one can get the number.
    """


@worker.command("list")
@fleet_options
def list_numbers(urls: tuple[str, ...]) -> None:
    """Print who holds which number, and the newest meteor nodes.

    Of a fleet it asks every slot. The exit code is 1 if one does not answer.
    """
    with open_databases(urls) as databases:
        found = holders_in(databases, NODES)
    spaces, nodes = [to_row(space) for space in found.spaces], [node_to_row(node) for node in found.nodes]
    texts = [text_of(space) for space in spaces] or ["no number was leased yet"]
    if nodes:
        texts.append(table(nodes, "node started_at host process version"))
    show({"spaces": spaces, "nodes": nodes}, "\n\n".join(texts))
    tell_errors(found.away)


def to_row(space: Space) -> dict[str, Any]:
    about = {"space": space.name, "bits": space.bits, "seconds": space.length_ms / 1000, "free": space.free}
    return {**about, "held": [holder_to_row(row) for row in space.held]}


def holder_to_row(row: NumberRow) -> dict[str, object]:
    until = datetime.fromtimestamp(row.until_ms // 1000, UTC)
    return {"number": row.number, "host": row.host, "process": row.process, "until": until}


def node_to_row(node: Node) -> dict[str, object]:
    about = asdict(node)
    return {"node": about.pop("number"), **about}


def text_of(space: Mapping[str, Any]) -> str:
    held = space["held"]
    head = f"{space['space']}: {len(held)} held, {space['free']} free, leases of {space['seconds']:g} s"
    return f"{head}\n{table(held, 'number host process until')}" if held else head


class Wrapping(Command):
    """Its own failures have exit codes that commands do not use."""

    failure = OWN_FAILURE

    def parse_args(self, context: click.Context, words: list[str]) -> list[str]:
        try:
            return super().parse_args(context, words)
        except click.UsageError as error:
            error.show()
            sys.exit(self.failure)


@worker.command(
    "run", cls=Wrapping, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--space", required=True, help="Name of the numbers; those of another space are others.")
@option("--bits", type=int, default=10, help="Numbers are 0 to 2^BITS - 1.")
@option("--seconds", type=float, default=SECONDS, help="Length of the lease.")
@option("--env", "variable", default="WORKER_ID", help="Variable that gets the number.")
@urls_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run_under_number(
    space: str, bits: int, seconds: float, variable: str, urls: tuple[str, ...], command: tuple[str, ...]
) -> None:
    """Run COMMAND under a worker number that nobody else has.

    Leases the smallest free number of the space, renews it while COMMAND runs,
    and gives it back when COMMAND has ended. Passes signals on and keeps the
    exit code. In a container it needs an init such as tini. Exit code
    125: no number, or it ended; 126: COMMAND cannot be executed; 127: COMMAND
    was not found.

    COMMAND has ended before its number can be another process's. If renewals
    fail, it gets SIGTERM at 30 % of the lease, and SIGKILL at 15 %. The kernel
    kills it with this process, and both at 10 % if this process is stopped.

    Processes that leave the process group of COMMAND (daemons) are not stopped.
    Needs Linux.

    \b
    Examples:
        allocator worker run --space shop -- java -jar shop.jar
        allocator worker run --space shop --env NODE_ID --bits 5 -- node shop.mjs
    """
    if sys.platform != "linux":
        raise InvalidSetting(
            "allocator worker run needs Linux, whose kernel ends COMMAND in time; use Allocator.worker"
        )
    if os.getpid() == 1:  # the kernel kills no first process by its own timer
        raise InvalidSetting(
            "allocator worker run cannot be the first process of a container, which no timer of the kernel ends; start "
            "the container with docker run --init, or with: tini -- allocator worker run"
        )
    if not variable.isidentifier():
        raise InvalidSetting(f"--env must be the name of a variable, got {variable!r}")
    from allocator.cli.worker_run import Wrapper, wake

    wrapper = Wrapper(command, seconds, variable)
    with (
        open_allocator(urls, creates=True) as ids,
        ids.worker(space, bits=bits, seconds=seconds, on_lost=wake) as number,
    ):
        code = wrapper.run(number)
    sys.exit(code)
