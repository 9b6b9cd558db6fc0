"""The primary key of a model, given by an allocator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from django.core import checks  # type: ignore[import-untyped]
from django.db import models  # type: ignore[import-untyped]
from django.db.migrations.recorder import MigrationRecorder  # type: ignore[import-untyped]

from allocator.errors import InvalidTag
from allocator.integrations.django.ids import (
    allocator,
    column_of,
    greatest_of,
    is_own,
    is_testing,
    raise_above,
    start_in_tests,
)
from allocator.schemes.checks import check_tag

FACE = __name__.rpartition(".")[0]
"""Where the field is imported from, as migrations write it."""

PRIMARY_KEY = 3
"""Behind so many arguments that go by their place it was given too."""

M = TypeVar("M", bound=Any)


def at_save() -> None:
    """The default of the field: nothing yet. Since it has one, Django inserts a new row without an UPDATE before it."""


if TYPE_CHECKING:

    class BigAutoField(models.BigAutoField[int, int]):  # type: ignore[misc]
        """To `django-stubs` the key of an object is an int."""

else:
    BigAutoField = models.BigAutoField


class AllocatedBigAutoField(BigAutoField):
    """A primary key of 64 bits, given to an object when it is saved, or with others by `bulk_create`.

    tag: of the ids; by default the name of the model's table. Before a table is renamed, give its old name here: a
        new tag goes on above the greatest id that is in the table, and could give those of deleted rows again.

    The column is a plain bigint: the database counts nothing. As with any key that has a default, an object that is
    made with an id of its own is inserted, and `IntegrityError` raised where that id is there already.
    Errors as of `Allocator.next_id`.
    """

    db_returning = False  # MySQL would return the last value of a counter that is not there

    def __init__(self, *args: Any, tag: str | None = None, **options: Any) -> None:
        self._own_tag = tag
        options["default"] = at_save
        if len(args) < PRIMARY_KEY:
            options.setdefault("primary_key", True)
        super().__init__(*args, **options)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, path, args, options = super().deconstruct()
        path = path.replace(__name__, FACE)
        del options["default"]
        if self._own_tag is not None:
            options["tag"] = self._own_tag
        return name, path, args, options

    def contribute_to_class(self, cls: Any, name: str, **options: Any) -> None:
        if self.auto_created and is_out_of_reach(cls):
            models.BigAutoField("ID", primary_key=True, auto_created=True).contribute_to_class(cls, name)
            return
        super().contribute_to_class(cls, name, **options)
        self._sequence: Any = None

    def get_internal_type(self) -> str:
        return "BigIntegerField"  # and no counter of the database's

    def rel_db_type(self, connection: Any) -> Any:
        return self.db_type(connection)  # also of a subclass with a narrower column

    @property
    def tag(self) -> str:
        return str(self.model._meta.db_table) if self._own_tag is None else self._own_tag

    def get_pk_value_on_save(self, instance: Any) -> Any:
        """Called by `save` and `bulk_create` for an object without an id."""
        return self.next_id()

    def next_id(self) -> int:
        """The next id of the model, from memory or the database."""
        ids = allocator()
        known = self._sequence  # read once: another thread may set it for another allocator meanwhile
        if known is None or known[0] is not ids:
            return self._first_id(ids)
        return int(known[1].next_id())

    def _first_id(self, ids: Any) -> int:
        """In a process: above what the table holds, as of a counter that was there before, or of fixtures."""
        sequence = ids.sequence(self.tag)
        sequence._fit(column_of(self))  # before the tag is made
        used = raise_above(ids, self.tag, self._greatest_used(ids))
        while (number := int(sequence.next_id())) <= used:
            pass  # what another model with this tag has left in memory
        self._sequence = ids, sequence
        return number

    def _greatest_used(self, ids: Any) -> int:
        if is_testing():  # without a query that comes in the first test alone
            return start_in_tests() if is_own(ids) else 0
        return greatest_of(self.model, self.attname)

    def check(self, **options: Any) -> list[Any]:
        return [*super().check(**options), *self._check_tag()]

    def _check_tag(self) -> list[Any]:
        try:
            check_tag(self.tag)
        except InvalidTag as error:
            hint = "Give the field a tag of its own, as in AllocatedBigAutoField(tag='order')."
            words = f"{self.tag!r} cannot be the tag of ids: {error}."
            return [checks.Error(words, hint=hint, obj=self, id="allocator.E001")]
        return []


def is_out_of_reach(model: Any) -> bool:
    """Whether no migration names the key, so that none could change it: Django's record of migrations, and the tables
    of many-to-many fields. `DEFAULT_AUTO_FIELD` must not take these, or it could never be left."""
    return bool(model._meta.auto_created) or model.__module__ == MigrationRecorder.__module__


def give_ids(objects: Iterable[M]) -> list[M]:
    """Give ids to those that have none, before they are saved: for parents and children that go into `bulk_create`."""
    listed = list(objects)
    for one in listed:
        if one.pk is None:
            one.pk = one._meta.pk.get_pk_value_on_save(one)
    return listed
