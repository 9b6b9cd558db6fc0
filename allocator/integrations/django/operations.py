"""The migration operation that moves a key from the database's counter to a tag, or back."""

from __future__ import annotations

from typing import Any

from django.db import models  # type: ignore[import-untyped]
from django.db.migrations import AlterField, RemoveField  # type: ignore[import-untyped]
from django.db.migrations.operations.base import Operation  # type: ignore[import-untyped]

from allocator.database.django.counters import keeping_counters, raise_counter, read_counter
from allocator.errors import AccessDenied, InvalidSetting, UnknownTag
from allocator.integrations.django.fields import AllocatedBigAutoField
from allocator.integrations.django.ids import allocator, column_of, greatest_in, settle


class AlterKey(AlterField):  # type: ignore[misc]
    """`AlterField` for a primary key that gets, loses or changes its tag. New ids are above all old ones.

        AlterKey("order", "id", AllocatedBigAutoField(primary_key=True, serialize=False))

    It reads the old ids from the counter or the tag, and from the table, so that ids of deleted rows do not repeat.
    Stop all inserts while it runs. It is reversible.
    """

    reduces_to_sql = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        connection = schema_editor.connection
        if not self.allow_migrate_model(connection.alias, model):
            return
        before = from_state.apps.get_model(app_label, self.model_name)._meta.get_field(self.name)
        after = model._meta.get_field(self.name)
        given = max(last_of(before, connection), greatest_in(connection.alias, before.model, before.attname))
        column = column_of(after)
        if given >= column.limit:
            raise InvalidSetting(f"ids up to {given} exist, but {column.name} holds none above {column.limit}")
        is_tag = isinstance(after, AllocatedBigAutoField)
        if given and is_tag:  # first: once the column has lost its counter, nothing else knows the ids of deleted rows
            continue_above(after, given, connection)
        with keeping_counters(connection):
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        if given and not is_tag:
            continue_above(after, given, connection)

    def reduce(self, operation: Any, app_label: str) -> Any:
        """As `AlterField`, but squashed with any other operation it stays one of its own."""
        if isinstance(operation, AlterKey | RemoveField) and self.is_same_field_operation(operation):
            return [operation]
        return Operation.reduce(self, operation, app_label)


def last_of(field: Any, connection: Any) -> int:
    """The greatest id that the tag or the counter of the key may have issued."""
    table = field.model._meta.db_table
    if isinstance(field, AllocatedBigAutoField):
        try:
            return int(allocator().tags.get(field.tag).max_value)
        except UnknownTag:
            return 0
    if not isinstance(field, models.AutoField):  # the application chose the ids
        return 0
    last = read_counter(connection, table, field.column)
    if last is None:
        raise InvalidSetting(
            f"{table}.{field.column} has no counter, so the ids of its deleted rows are unknown; "
            "replace this operation by migrations.AlterField, and first create the tag above every id ever used: "
            "manage.py allocator tags create TAG --start-after N"
        )
    return last


def continue_above(field: Any, given: int, connection: Any) -> None:
    if not isinstance(field, AllocatedBigAutoField):
        raise_counter(connection, field.model._meta.db_table, field.column, given)
        return
    if settle(allocator(), field.tag, column_of(field), given) < given:
        raise AccessDenied(f"tag {field.tag!r} must continue above {given}; use a token that may administer tags")
