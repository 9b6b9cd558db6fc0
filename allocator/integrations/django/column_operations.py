"""Migration operations on tags and their columns: made, bound for the doctor, and taken over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.migrations.operations.base import Operation  # type: ignore[import-untyped]

from allocator.database.address import address_of
from allocator.database.django.database_setting import keeps_ids_beside, url_of
from allocator.database.django.transaction import borrowed
from allocator.errors import InvalidSetting
from allocator.integrations import column_steps
from allocator.integrations.column_steps import Action
from allocator.integrations.django.fields import AllocatedBigAutoField
from allocator.integrations.django.ids import allocator, is_testing, own_databases
from allocator.schemes.tag import FailoverGap


class TagOperation(Operation):  # type: ignore[misc]
    """An operation on the allocator's rows. It changes no model, and cannot be printed as SQL."""

    reduces_to_sql = False
    reversible = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        pass

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        pass


class CreateTag(TagOperation):
    """Make a tag, with the arguments of `ids.tags.create`.

        CreateTag("parcel", step=100, start_after=7000)

    One that exists keeps its settings, and is raised above `start_after`. Reversed, it stays: a tag that is deleted and
    made again would repeat its ids.
    """

    def __init__(
        self,
        tag: str,
        *,
        step: int | None = None,
        max_step: int | None = None,
        limit: int | None = None,
        start_after: int = 0,
        failover_gap: FailoverGap | None = None,
    ) -> None:
        self.tag, self.start_after = tag, start_after
        self.settings = {"step": step, "max_step": max_step, "limit": limit, "failover_gap": failover_gap}

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        if shares(connection):
            with borrowed(connection) as own:
                column_steps.create_tag(own, self.tag, self.start_after, None, self.settings)
        else:
            column_steps.make_tag(allocator().tags, self.tag, self.start_after, self.settings)

    def describe(self) -> str:
        return f"Create tag {self.tag}"


class OnColumn(TagOperation):
    """An operation on the primary key of a model. tag: by default that of its `AllocatedBigAutoField`."""

    def __init__(self, model_name: str, tag: str = "") -> None:
        self.model_name, self.tag = model_name, tag

    def on_column(self, command: str, act: Callable[..., None], app_label: str, editor: Any, state: Any) -> None:
        """Call `act` with the migration's connection, the tag, and the column as table.column.

        Not in tests, nor on SQLite, where ids come from elsewhere and there is nothing to do.
        """
        model, connection = state.apps.get_model(app_label, self.model_name), editor.connection
        elsewhere = is_testing() or keeps_ids_beside(connection.vendor)
        if elsewhere or not self.allow_migrate_model(connection.alias, model):
            return
        field = model._meta.pk
        place = f"{model._meta.db_table}.{field.column}"
        if not shares(connection):
            raise InvalidSetting(
                f"ids come from another database than {place}, which Django calls {connection.alias!r}, so this "
                f"operation cannot see both; remove it, and see: allocator {command} --help"
            )
        tag = self.tag or (field.tag if isinstance(field, AllocatedBigAutoField) else "")
        with borrowed(connection) as own:
            act(own, tag, place)


class BindTag(OnColumn):
    """Bind a tag to the primary key of a model, so that the doctor looks at both.

        BindTag("parcel")

    Reversed, it unbinds the key. It does nothing in tests and on SQLite, where ids come from another database.
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self.on_column("tags bind", column_steps.bind_tag, app_label, schema_editor, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        def unbind(connection: Any, _: str, place: str) -> None:
            column_steps.unbind_tag(connection, place)

        self.on_column("tags unbind", unbind, app_label, schema_editor, to_state)

    def describe(self) -> str:
        return f"Bind a tag to the key of {self.model_name}"


class TakeOver(OnColumn):
    """Take the key of a model over by a tag ("start"), "finish" it, or give it "back"; see docs/takeover.md.

        TakeOver("start", "parcel", tag="parcel")

    duration: how long both ways write, or until the tag may end, as 7d, 12h, 30m or 90s; the rate is not measured.
    idle: how long the old way must not have written, for "finish".

    Reversed, "start" gives back; the others have no reverse. It does nothing in tests and on SQLite.
    """

    def __init__(
        self, action: Action, model_name: str, tag: str = "", *, duration: str = "7d", idle: str = "10m"
    ) -> None:
        super().__init__(model_name, tag)
        self.action, self.duration, self.idle = action, duration, idle
        self.reversible = action == "start"

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self.take(self.action, app_label, schema_editor, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self.take("back", app_label, schema_editor, to_state)

    def take(self, action: str, app_label: str, editor: Any, state: Any) -> None:
        def act(connection: Any, tag: str, place: str) -> None:
            column_steps.takeover(connection, action, place, tag, self.duration, self.idle)

        self.on_column(f"takeover {action}", act, app_label, editor, state)

    def describe(self) -> str:
        return f"Take over the key of {self.model_name}: {self.action}"


def shares(connection: Any) -> bool:
    """Whether ids come from the database that this connection of Django's writes to."""
    own = own_databases()
    if is_testing() or keeps_ids_beside(connection.vendor) or len(own) != 1:
        return False
    there = address_of(url_of(connection.vendor, connection.settings_dict))
    return address_of(own[0]).public_url == there.public_url
