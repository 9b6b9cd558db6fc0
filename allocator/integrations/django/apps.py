"""The Django application: makes the allocator's tables at `migrate`, and checks the settings."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig  # type: ignore[import-untyped]
from django.core import checks  # type: ignore[import-untyped]
from django.db.models.signals import pre_migrate  # type: ignore[import-untyped]

from allocator.errors import AllocatorError
from allocator.integrations.django.ids import make_allocator, shares_file, upgrade


@checks.register()  # type: ignore[untyped-decorator]
def check_setting(**options: Any) -> list[Any]:
    """Whether ids can come from where the settings say; nothing is opened."""
    try:
        make_allocator()
        shared = shares_file()
    except AllocatorError as error:
        return [checks.Error(str(error), id="allocator.E002")]
    hint = "Leave the file out of ALLOCATOR, and ids come from one beside it, or name another."
    warning = "Ids come from a file of SQLite that Django writes to: a transaction that has written keeps them waiting."
    return [checks.Warning(warning, hint=hint, id="allocator.W001")] if shared else []


class AllocatorConfig(AppConfig):  # type: ignore[misc]
    """Has `manage.py migrate` make the allocator's tables, or upgrade them, before it migrates the application's."""

    name = "allocator.integrations.django"
    label = "allocator"

    def ready(self) -> None:
        pre_migrate.connect(upgrade, sender=self)
