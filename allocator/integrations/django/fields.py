"""Primary keys whose ids come from an allocator."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from django.core import checks  # type: ignore[import-untyped]
from django.db import models  # type: ignore[import-untyped]
from django.db.migrations.recorder import MigrationRecorder  # type: ignore[import-untyped]
from django.db.models.signals import post_save  # type: ignore[import-untyped]
from django.db.models.sql import InsertQuery  # type: ignore[import-untyped]

from allocator.errors import InvalidTag
from allocator.integrations.django.ids import allocator, column_of, settle, start_of
from allocator.schemes.shared.argument_checks import check_tag

M = TypeVar("M", bound=Any)


class DrawnKey(models.Value):  # type: ignore[misc]
    """The key of a new object from its draw until the INSERT is written, when the object gets the id itself.

    Django treats it as an expression, which is told of the query: an upsert may keep another row, with a key of its
    own, and then the object gets no id.
    """

    def __init__(self, field: Any, instance: Any) -> None:
        super().__init__(field.draw(), field)
        self.instance = instance

    def resolve_expression(self, query: Any = None, *args: Any, **options: Any) -> DrawnKey:
        if isinstance(query, InsertQuery):
            is_kept = query.on_conflict is None or self.field in query.unique_fields
            setattr(self.instance, self.field.attname, self.value if is_kept else None)
        return self


def inserting(save_table: Any) -> Any:
    """Wrap `_save_table` of a model: for an object without a key Django would try an UPDATE with the one it draws."""

    @wraps(save_table)
    def _save_table(
        self: Any,
        raw: bool = False,
        cls: Any = None,
        force_insert: bool = False,
        force_update: bool = False,
        using: Any = None,
        update_fields: Any = None,
    ) -> Any:
        is_new = None in parts_of(self._get_pk_val(cls._meta))
        if is_new and (force_update or update_fields):  # as Django says, before it draws a key
            raise ValueError("Cannot force an update in save() with no primary key.")
        for field in cls._meta.local_concrete_fields if is_new else ():
            if isinstance(field, AllocatedBigAutoField) and getattr(self, field.attname) is None:
                setattr(self, field.attname, field.draw())  # no expression, whose value Django 6.1 asks back
        return save_table(self, raw, cls, force_insert or is_new, force_update, using, update_fields)

    return _save_table


def parts_of(key: Any) -> tuple[Any, ...]:
    """The values of a key; a composite key is a tuple."""
    return key if isinstance(key, tuple) else (key,)


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

    __module__ = "allocator.integrations.django"  # where migrations import it from, so that this file may move
    db_returning = False  # MySQL would return the last value of a counter that does not exist

    def __init__(self, *args: Any, tag: str | None = None, **options: Any) -> None:
        self._own_tag = tag
        options.setdefault("primary_key", True)
        super().__init__(*args, **options)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, path, args, options = super().deconstruct()
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
        self._sequence: Any = None
        self._greatest_loaded = 0
        if not cls._meta.abstract:
            cls._save_table = inserting(cls._save_table)
            post_save.connect(self.on_save, sender=cls)

    def on_save(self, *, instance: Any, raw: bool, **signal: Any) -> None:
        """Let the next id be above a key that a fixture brings."""
        if raw:
            loaded = int(self.get_prep_value(getattr(instance, self.attname)))
            self._greatest_loaded = max(self._greatest_loaded, loaded)
            self._sequence = None

    def get_internal_type(self) -> str:
        return "BigIntegerField"  # a column without a counter

    def rel_db_type(self, connection: Any) -> Any:
        return self.db_type(connection)  # a subclass may have a narrower column

    @property
    def tag(self) -> str:
        return str(self.model._meta.db_table) if self._own_tag is None else self._own_tag

    def get_pk_value_on_save(self, instance: Any) -> DrawnKey:
        return DrawnKey(self, instance)

    def pre_save(self, instance: Any, add: bool) -> Any:
        value = getattr(instance, self.attname)
        return self.get_pk_value_on_save(instance) if value is None else value  # None where the key is another field

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        return super().get_db_prep_save(value.value if isinstance(value, DrawnKey) else value, connection)

    def draw(self) -> Any:
        """Draw the key of the next object."""
        ids = allocator()
        known = self._sequence  # read once: another thread may replace it
        if known is None or known[0] is not ids:
            return self._first_id(ids)
        return int(known[1].next_id())

    def _first_id(self, ids: Any) -> int:
        """Draw the first id in this process, above all ids in the table: a counter or a fixture may have set them."""
        sequence = ids.sequence(self.tag)
        column = column_of(self)
        start = start_of(ids, self.model, self.attname, column.limit)
        used = settle(ids, self.tag, column, max(start, self._greatest_loaded))
        while (number := int(sequence.next_id())) <= used:
            pass  # skip ids in memory from another model with this tag
        self._sequence = ids, sequence
        return number

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
        if one.pk is None:
            one.pk = key_of(one).draw()
        elif None in parts_of(one.pk):
            field = next(field for field in one._meta.pk.fields if isinstance(field, AllocatedBigAutoField))
            setattr(one, field.attname, field.draw())
    return listed


def key_of(model: Any) -> Any:
    """The primary key, or that of the parent by multi-table inheritance, whose id is the child's."""
    key = model._meta.pk
    while getattr(key.remote_field, "parent_link", False):
        key = key.target_field
    return key
