"""Public ids in Django: a path converter, and a primary key that is text in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError  # type: ignore[import-untyped]

from allocator.errors import InvalidId
from allocator.integrations.django.fields import FACE, AllocatedBigAutoField
from allocator.public_ids import PublicIds


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

    def get_pk_value_on_save(self, instance: Any) -> str:
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
