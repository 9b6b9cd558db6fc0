"""The Django application: creates the allocator's tables in `migrate`, and checks the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import AppConfig  # type: ignore[import-untyped]
from django.core import checks  # type: ignore[import-untyped]
from django.db.migrations import AlterField, AlterModelTable, RenameModel  # type: ignore[import-untyped]
from django.db.migrations.loader import MigrationLoader  # type: ignore[import-untyped]
from django.db.models.signals import pre_migrate  # type: ignore[import-untyped]

from allocator.errors import AllocatorError
from allocator.integrations.django.fields import AllocatedBigAutoField
from allocator.integrations.django.ids import make_allocator, upgrade

CHANGES = {
    AlterField: ("model_name", "model_name"),
    RenameModel: ("old_name", "new_name"),
    AlterModelTable: ("name", "name"),
}
"""What may give a key another tag, with the attributes for the name of the model before and after. `AlterKey`, which
carries the ids over, is a class of its own."""


@checks.register()  # type: ignore[untyped-decorator]
def check_setting(**options: Any) -> list[Any]:
    """Check the settings without a connection."""
    try:
        make_allocator()
    except AllocatorError as error:
        return [checks.Error(str(error), id="allocator.E002")]
    return []


@checks.register()  # type: ignore[untyped-decorator]
def check_migrations(**options: Any) -> list[Any]:
    """Name each operation that gives a key another tag, without an `AlterKey` by which the ids of the old one count."""
    try:
        loader = MigrationLoader(None, ignore_no_migrations=True)
    except Exception:  # `migrate` tells what is wrong with a migration
        return []
    return [warning for migration in loader.graph.nodes.values() for warning in changes_of_tags(loader, migration)]


def changes_of_tags(loader: Any, migration: Any) -> Iterator[Any]:
    app, face = migration.app_label, AllocatorConfig.name
    if not any(type(one) in CHANGES for one in migration.operations):
        return
    state = loader.project_state((app, migration.name), at_end=False)
    for operation in migration.operations:
        old, new = (getattr(operation, name, "") for name in CHANGES.get(type(operation), ("", "")))
        key, before = key_in(state, app, old)
        operation.state_forwards(app, state)
        _, after = key_in(state, app, new)
        if before == after:
            continue
        if type(operation) is AlterField:
            hint = f"There write {face}.AlterKey( in place of migrations.AlterField(, and above: import {face}"
        else:
            field = f"{AllocatedBigAutoField.__name__}(primary_key=True, serialize=False, tag={before!r})"
            line = f"AlterKey({old!r}, {key!r}, {field}),"
            hint = f"Give the field of the model tag={before!r}, and above the operation write {line}"
        message = f"{app}.{migration.name}: {operation.describe()}: ids of deleted rows come again, or INSERTs fail."
        yield checks.Warning(message, hint=hint, id="allocator.W004")


def key_in(state: Any, app: str, name: str) -> tuple[str, str]:
    """The name of a model's key and its tag; empty texts if no tag numbers it."""
    model = state.models.get((app, name.lower()))
    for key, field in model.fields.items() if model else ():
        if field.primary_key and isinstance(field, AllocatedBigAutoField):
            return key, field._own_tag or model.options.get("db_table") or f"{app}_{name.lower()}"
    return "", ""


class AllocatorConfig(AppConfig):  # type: ignore[misc]
    """Makes `manage.py migrate` create or upgrade the allocator's tables before all other migrations."""

    name = "allocator.integrations.django"
    label = "allocator"

    def ready(self) -> None:
        pre_migrate.connect(upgrade, sender=self)
