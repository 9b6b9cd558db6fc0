"""The Django application: creates the allocator's tables in `migrate`, and checks the settings."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps  # type: ignore[import-untyped]
from django.core import checks  # type: ignore[import-untyped]
from django.db.models.signals import pre_migrate  # type: ignore[import-untyped]

from allocator.errors import AllocatorError
from allocator.integrations.django.ids import make_allocator, own_databases, shares_file, upgrade


@checks.register()  # type: ignore[untyped-decorator]
def check_setting(**options: Any) -> list[Any]:
    """Check the settings without a connection."""
    try:
        make_allocator()
        shared = shares_file()
    except AllocatorError as error:
        return [checks.Error(str(error), id="allocator.E002")]
    hint = "Remove the file from ALLOCATOR to draw ids from a separate file beside it, or name another file."
    warning = "Ids come from a SQLite file that Django writes to: a transaction that has written blocks new ids."
    return [checks.Warning(warning, hint=hint, id="allocator.W001")] if shared else []


@checks.register()  # type: ignore[untyped-decorator]
def check_installed(**options: Any) -> list[Any]:
    """Tell a project that uses the field without the application."""
    if apps.is_installed(AllocatorConfig.name):
        return []
    try:
        makes_tables = bool(own_databases())
    except AllocatorError:  # of which E002 tells
        return []
    message = f"{AllocatorConfig.name!r} is not in INSTALLED_APPS: migrate does not create the tables of ids."
    hint = "Add it to INSTALLED_APPS."
    return [checks.Warning(message, hint=hint, id="allocator.W003")] if makes_tables else []


class AllocatorConfig(AppConfig):  # type: ignore[misc]
    """Makes `manage.py migrate` create or upgrade the allocator's tables before all other migrations."""

    name = "allocator.integrations.django"
    label = "allocator"

    def ready(self) -> None:
        pre_migrate.connect(upgrade, sender=self)
