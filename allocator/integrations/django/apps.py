"""The Django application: creates the allocator's tables in `migrate`, and checks the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import AppConfig, apps  # type: ignore[import-untyped]
from django.core import checks  # type: ignore[import-untyped]
from django.db.migrations import AlterField, AlterModelTable, RenameModel  # type: ignore[import-untyped]
from django.db.migrations.loader import MigrationLoader  # type: ignore[import-untyped]
from django.db.models.signals import pre_migrate  # type: ignore[import-untyped]

from allocator.errors import AllocatorError
from allocator.integrations.django.fields import AllocatedBigAutoField
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


@checks.register()  # type: ignore[untyped-decorator]
def check_migrations(**options: Any) -> list[Any]:
    """Name each plain `AlterField` of a key that gets, loses or changes its tag, and each renaming that changes it."""
    try:
        loader = MigrationLoader(None, ignore_no_migrations=True)
    except Exception:  # `migrate` tells what is wrong with a migration
        return []
    plain = (
        f"{app}.{migration.name}: AlterField of {operation.model_name}.{operation.name}"
        for (app, _), migration in loader.graph.nodes.items()
        for place, operation in enumerate(migration.operations)
        if type(operation) is AlterField and operation.field.primary_key
        if generator_of(operation.field) != generator_of(field_before(loader, migration, place))
    )
    hint = "There write {0}.AlterKey( in place of migrations.AlterField(, and above: import {0}"
    message = "{} gives ids of deleted rows again, or makes INSERTs fail."
    hint = hint.format(AllocatorConfig.name)
    found = [checks.Warning(message.format(one), hint=hint, id="allocator.W004") for one in plain]
    return found + [warning for migration in loader.graph.nodes.values() for warning in renamings(loader, migration)]


def renamings(loader: Any, migration: Any) -> Iterator[Any]:
    """Warn of each table that gets another name, and its key with it another tag."""
    app = migration.app_label
    for place, operation in enumerate(migration.operations):
        if not isinstance(operation, RenameModel | AlterModelTable):
            continue
        is_model = isinstance(operation, RenameModel)
        old, new = (operation.old_name, operation.new_name) if is_model else (operation.name, operation.name)
        key, tag = key_in(state_before(loader, migration, place), app, old)
        _, after = key_in(loader.project_state((app, migration.name)), app, new)
        if tag and after and tag != after:
            message = f"{app}.{migration.name}: {operation.describe()}: ids of deleted rows come again, of a new tag."
            field = f"{AllocatedBigAutoField.__name__}(primary_key=True, serialize=False, tag={tag!r})"
            line = f"AlterKey({old!r}, {key!r}, {field}),"
            hint = f"Give the field of the model tag={tag!r}, and above the operation write {line}"
            yield checks.Warning(message, hint=hint, id="allocator.W004")


def key_in(state: Any, app: str, name: str) -> tuple[str, str]:
    """The name of a model's key and its tag; empty texts if no tag numbers it."""
    model = state.models.get((app, name.lower()))
    for key, field in model.fields.items() if model else ():
        if field.primary_key and isinstance(field, AllocatedBigAutoField):
            return key, field._own_tag or model.options.get("db_table") or f"{app}_{name.lower()}"
    return "", ""


def generator_of(field: Any) -> tuple[bool, str | None]:
    return isinstance(field, AllocatedBigAutoField), getattr(field, "_own_tag", None)


def field_before(loader: Any, migration: Any, place: int) -> Any:
    """The field that an operation of a migration alters."""
    altered = migration.operations[place]
    state = state_before(loader, migration, place)
    return state.models[migration.app_label, altered.model_name_lower].fields[altered.name]


def state_before(loader: Any, migration: Any, place: int) -> Any:
    """The models before an operation of a migration."""
    state = loader.project_state((migration.app_label, migration.name), at_end=False)
    for operation in migration.operations[:place]:
        operation.state_forwards(migration.app_label, state)
    return state


class AllocatorConfig(AppConfig):  # type: ignore[misc]
    """Makes `manage.py migrate` create or upgrade the allocator's tables before all other migrations."""

    name = "allocator.integrations.django"
    label = "allocator"

    def ready(self) -> None:
        pre_migrate.connect(upgrade, sender=self)
