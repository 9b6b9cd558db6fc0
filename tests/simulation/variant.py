"""What a world does otherwise than it should, to show that the simulator finds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.dialect import Dialect
from simulation.network import Statement
from simulation.statement import Rules


@dataclass
class Variant:
    """rules: of the claim. dialect, statement: how it is carried out. fork_hooks: whether those of a child run.

    forgets_margins: whether a server may also forget that a margin was left out, in a second failover at once.
    """

    rules: Rules = field(default_factory=Rules)
    dialect: type[Dialect] = Dialect
    statement: type[Statement] = Statement
    fork_hooks: bool = True
    forgets_margins: bool = False
