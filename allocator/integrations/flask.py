"""Flask: one allocator for an application, in every process that serves it.

allocation = Allocation(app)
...
current_allocator.next_id("order")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

try:
    from flask import current_app
    from werkzeug.local import LocalProxy
except ImportError as error:
    raise ImportError(
        "allocator.integrations.flask needs Flask, which is not installed; pip install 'segment-allocator[flask]'"
    ) from error

from allocator.errors import InvalidSetting
from allocator.integrations.holding import Holder
from allocator.sync import Allocator

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from flask import Flask

URL, OPTIONS, NAME = "ALLOCATOR_DATABASE_URL", "ALLOCATOR_OPTIONS", "allocator"


class Allocation:
    """The extension. Made with an application, or given to several by `init_app`, each of which has its own allocator.

    `ALLOCATOR_DATABASE_URL` of the application's configuration is what `Allocator` takes in first place: a URL, an
    engine, or a list of addresses of a service. `ALLOCATOR_OPTIONS`, a dict, are further arguments of it. Nothing is
    opened before the first id. Safe with servers that fork, also after ids were drawn.
    """

    def __init__(self, app: Flask | None = None) -> None:
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Make the allocator of `app` known as `current_allocator`; its configuration is read with the first id.

        A second time changes nothing: the end of another holder would close the allocator under its users.
        """
        if not isinstance(app.extensions.get(NAME), Holder):
            app.extensions[NAME] = Holder(lambda: from_config(app))


def from_config(app: Flask) -> Allocator:
    """Raises `InvalidSetting` and `InvalidDatabase`."""
    database, options = app.config.get(URL), app.config.get(OPTIONS) or {}
    if database is None and "shards" not in options:
        raise InvalidSetting(f"{URL} is missing in the configuration of the application; set it to a database URL")
    try:
        return Allocator(database, **options)
    except TypeError as error:
        raise InvalidSetting(f"{OPTIONS} holds what Allocator does not take: {error}") from error


def holder_of(app: Flask) -> Holder:
    holder = app.extensions.get(NAME)
    if not isinstance(holder, Holder):
        raise InvalidSetting("this application has no allocator; make one with Allocation(app)")
    return holder


def use(app: Flask, allocator: object) -> AbstractContextManager[object]:
    """Have `current_allocator` be another one of `app` meanwhile, for tests. Closing it is the caller's business."""
    return holder_of(app).use(allocator)


current_allocator = cast(Allocator, LocalProxy(lambda: holder_of(current_app).get()))
"""The `Allocator` of the application that is being served."""
