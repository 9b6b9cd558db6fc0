"""Migration operations on tags: one that makes a tag, and two of 0.2 that do nothing any more."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation  # type: ignore[import-untyped]

from allocator.database.address import address_of
from allocator.database.django.database_setting import keeps_ids_beside, url_of
from allocator.database.django.transaction import borrowed
from allocator.integrations import column_steps
from allocator.integrations.django.ids import allocator, is_testing, own_databases
from allocator.schemes.tag import FailoverGap

IN_QUERY = ("host", "port", "unix_socket", "service", "read_default_file")
"""Arguments of a URL that name a server."""


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


class LeftOut(TagOperation):
    """An operation of 0.2 that does nothing any more, forwards and backwards, so that old migrations still run."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        column_steps.leave_out(type(self).__name__)

    database_backwards = database_forwards


class BindTag(LeftOut):
    """Do nothing: tags are not bound to keys any more."""

    def __init__(self, model_name: str, tag: str = "") -> None:
        self.model_name = model_name

    def describe(self) -> str:
        return f"Bind a tag to the key of {self.model_name} (left out)"


class TakeOver(LeftOut):
    """Do nothing: keys are not taken over any more."""

    def __init__(self, action: str, model_name: str, tag: str = "", *, duration: str = "7d", idle: str = "10m") -> None:
        self.action, self.model_name = action, model_name

    def describe(self) -> str:
        return f"Take over the key of {self.model_name}: {self.action} (left out)"


def shares(connection: Any) -> bool:
    """Whether ids come from the database that this connection of Django's writes to."""
    own = own_databases()
    if is_testing() or keeps_ids_beside(connection.vendor) or len(own) != 1:
        return False
    return server_of(own[0]) == server_of(url_of(connection.vendor, connection.settings_dict))


def server_of(database: Any) -> tuple[object, ...]:
    address = address_of(database)
    return address.public_url, *(address.url.query.get(name) for name in IN_QUERY)
