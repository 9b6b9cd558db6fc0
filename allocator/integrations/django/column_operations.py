"""The migration operation that makes a tag."""

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


class CreateTag(Operation):  # type: ignore[misc]
    """Make a tag, with the arguments of `ids.tags.create`.

        CreateTag("parcel", step=100, start_after=7000)

    One that exists keeps its settings, and is raised above `start_after`. Reversed, it stays: a tag that is deleted and
    made again would repeat its ids. It changes no model, and cannot be printed as SQL.
    """

    reduces_to_sql = False
    reversible = True

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

    def state_forwards(self, app_label: str, state: Any) -> None:
        pass

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        if shares(connection):
            with borrowed(connection) as own:
                column_steps.create_tag(own, self.tag, self.start_after, None, self.settings)
        else:
            column_steps.make_tag(allocator().tags, self.tag, self.start_after, self.settings)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        pass

    def describe(self) -> str:
        return f"Create tag {self.tag}"


def shares(connection: Any) -> bool:
    """Whether ids come from the database that this connection of Django's writes to."""
    own = own_databases()
    if is_testing() or keeps_ids_beside(connection.vendor) or len(own) != 1:
        return False
    return server_of(own[0]) == server_of(url_of(connection.vendor, connection.settings_dict))


def server_of(database: Any) -> tuple[object, ...]:
    address = address_of(database)
    return address.public_url, *(address.url.query.get(name) for name in IN_QUERY)
