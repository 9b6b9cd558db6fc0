"""What a world does otherwise than it should, to show that the simulator finds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.dialect import Dialect
from simulation.network import Statement
from simulation.statement import Rules


@dataclass
class Variant:
    """rules: of the claim. dialect, statement: how it is carried out. fork_hooks: whether those of a child run.

    forgets_gaps: whether a server may also forget that a gap was skipped, in a second failover at once.
    restarts_count: whether a durable server is another one after a restart.
    promotions_unseen: whether a promoted standby looks like the server before.
    operators_tell: whether an operator says that a backup was put back on the same server.
    """

    rules: Rules = field(default_factory=Rules)
    dialect: type[Dialect] = Dialect
    statement: type[Statement] = Statement
    fork_hooks: bool = True
    forgets_gaps: bool = False
    restarts_count: bool = False
    promotions_unseen: bool = False
    operators_tell: bool = True
