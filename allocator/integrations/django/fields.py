"""Primary keys whose ids come from an allocator, and a path converter for public ids."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from django.core import checks  # type: ignore[import-untyped]
from django.core.exceptions import ValidationError  # type: ignore[import-untyped]
from django.db import models  # type: ignore[import-untyped]
from django.db.migrations.recorder import MigrationRecorder  # type: ignore[import-untyped]
from django.db.models.signals import post_save, pre_save  # type: ignore[import-untyped]

from allocator.errors import InvalidId, InvalidTag
from allocator.integrations.django.ids import (
    allocator,
    column_of,
    is_own,
    is_testing,
    look,
    raise_above,
    start_in_tests,
)
from allocator.public_ids import PublicIds
from allocator.schemes.shared.argument_checks import check_tag

FACE = __name__.rpartition(".")[0]
"""Migrations import the field from here, so this module may move."""

PRIMARY_KEY = 3
"""The position of `primary_key` in the arguments of a Django field, from 1."""

M = TypeVar("M", bound=Any)


IN_SAVE = object()
"""The `_state.allocated` of an object in `save`, before its INSERT; in `bulk_create` it is the id drawn for it."""


def before_save(*, instance: Any, raw: bool, **signal: Any) -> None:
    instance._state.allocated = None if raw else IN_SAVE
    if raw:  # a fixture brings keys of its own
        for field in instance._meta.concrete_fields:
            if isinstance(field, AllocatedBigAutoField):
                field.look_again()


def after_save(*, instance: Any, **signal: Any) -> None:
    instance._state.allocated = None


pre_save.connect(before_save)
post_save.connect(after_save)


class DrawnKey:
    """An id drawn by `bulk_create`, on its way into the INSERT.

    Django treats it as an expression, which is told of the query. If an upsert may keep another row, with a key of its
    own, the object must not keep this id.
    """

    contains_column_references = contains_aggregate = contains_over_clause = False

    def __init__(self, field: Any, instance: Any) -> None:
        self.field, self.instance = field, instance
        self.value = getattr(instance, field.attname)

    def resolve_expression(self, query: Any, *args: Any, **options: Any) -> DrawnKey:
        if query.on_conflict is not None and self.field not in query.unique_fields:
            setattr(self.instance, self.field.attname, None)
        return self


if TYPE_CHECKING:

    class BigAutoField(models.BigAutoField[int, int]):  # type: ignore[misc]
        """To `django-stubs` the key of an object is an int."""

else:
    BigAutoField = models.BigAutoField


class AllocatedBigAutoField(BigAutoField):
    """A primary key of 64 bits, given to an object when it is saved, or with others by `bulk_create`.

    tag: the tag of the ids, by default the name of the table. Set it to the old name before you rename the table: a
        new tag would start above the greatest id in the table, and could repeat the ids of deleted rows.

    The column is a plain bigint without a counter. `save` of an object with an explicit id updates that row, or inserts
    it, as with any `AutoField`. Errors are those of `Allocator.next_id`.
    """

    db_returning = False  # MySQL would return the last value of a counter that does not exist

    def __init__(self, *args: Any, tag: str | None = None, **options: Any) -> None:
        self._own_tag = tag
        if len(args) < PRIMARY_KEY:
            options.setdefault("primary_key", True)
        super().__init__(*args, **options)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, path, args, options = super().deconstruct()
        path = path.replace(__name__, FACE)
        options["primary_key"] = self.primary_key
        if self._own_tag is not None:
            options["tag"] = self._own_tag
        return name, path, args, options

    def contribute_to_class(self, cls: Any, name: str, **options: Any) -> None:
        if self.auto_created and is_out_of_reach(cls):
            models.BigAutoField("ID", primary_key=True, auto_created=True).contribute_to_class(cls, name)
            return
        super().contribute_to_class(cls, name, **options)
        cls._meta.auto_field = copy(self)  # Django leaves the field itself out of an INSERT of an object without a key
        self.look_again()

    def look_again(self) -> None:
        """Let the next id be above all ids in the table, as the first one of this process."""
        self._sequence: Any = None
        self._looked: tuple[Any, dict[str, int]] = None, {}

    def get_internal_type(self) -> str:
        return "BigIntegerField"  # a column without a counter

    def rel_db_type(self, connection: Any) -> Any:
        return self.db_type(connection)  # a subclass may have a narrower column

    @property
    def tag(self) -> str:
        return str(self.model._meta.db_table) if self._own_tag is None else self._own_tag

    def get_pk_value_on_save(self, instance: Any) -> Any:
        """Draw an id for an object without one, in `bulk_create`.

        In `save` return None, and `pre_save` draws: Django would first try to update the row of a key.
        """
        state = instance._state
        if getattr(state, "allocated", None) is IN_SAVE:
            state.allocated = None
            return None
        state.allocated = self.draw()
        return state.allocated

    def pre_save(self, instance: Any, add: bool) -> Any:
        value = getattr(instance, self.attname)
        if value is None:
            value = self.draw()
            setattr(instance, self.attname, value)
        elif instance._state.adding and getattr(instance._state, "allocated", None) == value:
            return DrawnKey(self, instance)
        return value

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        return super().get_db_prep_save(value.value if isinstance(value, DrawnKey) else value, connection)

    def draw(self) -> Any:
        """Draw the key of the next object."""
        return self.next_id()

    def next_id(self) -> int:
        """Draw the next id of the model."""
        ids = allocator()
        known = self._sequence  # read once: another thread may replace it
        if known is None or known[0] is not ids:
            return self._first_id(ids)
        return int(known[1].next_id())

    def _first_id(self, ids: Any) -> int:
        """Draw the first id in this process, above all ids in the table: a counter or a fixture may have set them."""
        sequence = ids.sequence(self.tag)
        column = column_of(self)
        sequence._fit(column)  # before the tag is created
        greatest, is_complete = self._greatest_used(ids, column.limit)
        used = raise_above(ids, self.tag, greatest)
        while (number := int(sequence.next_id())) <= used:
            pass  # skip ids in memory from another model with this tag
        if is_complete:
            self._sequence = ids, sequence
        return number

    def _greatest_used(self, ids: Any, limit: int) -> tuple[int, bool]:
        """The value that ids must be above, and whether all databases were asked."""
        start = 0
        if is_testing():
            if not is_own(ids):
                return 0, True
            start = start_in_tests(ids, limit)
        if self._looked[0] is not ids:
            self._looked = ids, {}
        greatest = self._looked[1]
        is_complete = look(self.model, self.attname, greatest)
        return max([start, *greatest.values()]), is_complete

    def check(self, **options: Any) -> list[Any]:
        found = super().check(**options)
        if self in getattr(self.model._meta, "pk_fields", ()):  # a composite key: the database need not count inside it
            found = [one for one in found if one.id != "fields.E100"]
        try:
            check_tag(self.tag)
        except InvalidTag as error:
            hint = "Name a tag, as in AllocatedBigAutoField(tag='order')."
            message = f"{self.tag!r} cannot be a tag: {error}."
            found.append(checks.Error(message, hint=hint, obj=self, id="allocator.E001"))
        return list(found)


def is_out_of_reach(model: Any) -> bool:
    """Tell whether no migration can change the key: Django's table of migrations, and tables of many-to-many fields.

    `DEFAULT_AUTO_FIELD` must not apply to these, or a project could never change it back.
    """
    return bool(model._meta.auto_created) or model.__module__ == MigrationRecorder.__module__


def give_ids(objects: Iterable[M]) -> list[M]:
    """Set ids on objects without one before they are saved, such as parents and children for `bulk_create`."""
    listed = list(objects)
    for one in listed:
        parts = one.pk if isinstance(one.pk, tuple) else (one.pk,)  # a composite key is a tuple
        if None in parts:
            one._state.allocated = None  # not in `save` here, though a receiver of `pre_save` may call
            one.pk = key_of(one).get_pk_value_on_save(one)
            one._state.allocated = None  # the caller may have used the id already: it stays in an upsert
    return listed


def key_of(model: Any) -> Any:
    """The primary key, or that of the parent by multi-table inheritance, whose id is the child's."""
    key = model._meta.pk
    while getattr(key.remote_field, "parent_link", False):
        key = key.target_field
    return key


class PublicBigAutoField(AllocatedBigAutoField):
    """An `AllocatedBigAutoField` that is a bigint in the table, and text in Python, URLs, forms and fixtures.

        id = PublicBigAutoField(public=PublicIds(key, prefix="ord_"))

    Queries accept the text or the number. Foreign keys to it are text too. Migrations contain an
    `AllocatedBigAutoField`, so that they do not contain the key.
    """

    if TYPE_CHECKING:  # for `django-stubs`

        def __get__(self, instance: Any, owner: Any) -> str: ...
        def __set__(self, instance: Any, value: str) -> None: ...

    def __init__(self, *args: Any, public: PublicIds, **options: Any) -> None:
        self._public = public
        super().__init__(*args, **options)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, _, args, options = super().deconstruct()
        return name, f"{FACE}.{AllocatedBigAutoField.__name__}", args, options

    def clone(self) -> AllocatedBigAutoField:
        """Copy the field for the models of migrations."""
        _, _, args, options = self.deconstruct()
        return AllocatedBigAutoField(*args, **options)

    def draw(self) -> str:
        return self._public.encode(self.next_id())

    def from_db_value(self, value: int | None, expression: Any, connection: Any) -> str | None:
        return None if value is None else self._public.encode(value)

    def get_prep_value(self, value: Any) -> Any:
        return super().get_prep_value(self._public.decode(value) if isinstance(value, str) else value)

    def to_python(self, value: Any) -> Any:
        try:
            return value if value is None else self._public.encode(self.get_prep_value(value))
        except InvalidId as error:
            raise ValidationError(str(error), code="invalid") from None


def public_id_converter(public: PublicIds) -> type:
    """Make a path converter: the URL holds the text of a public id, the view gets its number.

        register_converter(public_id_converter(orders), "order")
        path("orders/<order:order_id>", show_order)

    A text that `public` cannot decode does not match, so the response is 404.
    """

    class PublicIdConverter:
        regex = "[^/]+"

        def to_python(self, value: str) -> int:
            return public.decode(value)

        def to_url(self, value: int) -> str:
            return public.encode(value)

    return PublicIdConverter
