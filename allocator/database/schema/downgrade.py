"""Check before the first step of a downgrade whether a later step would refuse.

MySQL and MariaDB commit each DDL statement: after a refusal half-way, what earlier steps dropped would be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext

ahead: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
"""The steps of each run of Alembic, by its context. A relative target such as -2 is resolved at the first step."""


def check_downgrade(context: MigrationContext | None = None, revision: str = "") -> None:
    """Raise `CommandError` if a step of the downgrade that Alembic has begun would forget ids.

    Each of our steps calls this. An application with our revisions in its own history also calls it in `env.py`,
    between `context.configure` and `context.run_migrations`: then a refusal comes before its own steps too.
    """
    if context is None:
        from alembic import context as environment

        context = environment.get_context()
    # Other commands have no destination, and some print or compare the steps.
    if context.as_sql or "destination_rev" not in context.opts:
        return
    begun = context in ahead
    if not begun:
        steps = context.opts["fn"](context.get_current_heads(), context)
        scripts = [step.revision for step in steps if hasattr(step, "revision") and not step.is_upgrade]
        ahead[context] = {script.revision: script.module for script in scripts}
    for number, module in ahead[context].items():
        if not begun or number == revision:
            refuse(module, context, "refused" if begun else "refused before any table of the allocator was changed")


def refuse(module: Any, context: MigrationContext, what: str) -> None:
    from alembic.util import CommandError

    check = getattr(module, "kept_by_the_allocator", None)
    if check and (reason := check(context.connection)):
        raise CommandError(f"{what}: {reason}")
