"""Flask: one allocator per application and process.

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
from allocator.integrations.one_per_process import Holder
from allocator.sync import Allocator

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from flask import Flask

URL, OPTIONS, NAME = "ALLOCATOR_DATABASE_URL", "ALLOCATOR_OPTIONS", "allocator"


class Allocation:
    """The extension. `init_app` may add it to several applications, each with an allocator of its own.

    Configuration of the application:

    `ALLOCATOR_DATABASE_URL`: the first argument of `Allocator`: a URL, an engine, or a list of addresses of a service.
    `ALLOCATOR_OPTIONS`: a dict of further arguments.

    The allocator connects with the first id. Servers may fork at any time, even after that.
    """

    def __init__(self, app: Flask | None = None) -> None:
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Provide the allocator of `app` as `current_allocator`. The first use reads the configuration.

        A second call changes nothing: a second holder would close the allocator while others use it.
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
        raise InvalidSetting(f"{OPTIONS} holds an invalid argument of Allocator: {error}") from error


def holder_of(app: Flask) -> Holder:
    holder = app.extensions.get(NAME)
    if not isinstance(holder, Holder):
        raise InvalidSetting("this application has no allocator; add Allocation(app)")
    return holder


def use(app: Flask, allocator: object) -> AbstractContextManager[object]:
    """Replace the `current_allocator` of `app` within a `with` block, for tests. The caller closes it."""
    return holder_of(app).use(allocator)


current_allocator = cast(Allocator, LocalProxy(lambda: holder_of(current_app).get()))
"""The `Allocator` of the current application; use it only in an application context."""
