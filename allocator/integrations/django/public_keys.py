"""Public ids in Django: a converter for paths, and a primary key that is text outside of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError  # type: ignore[import-untyped]

from allocator.errors import InvalidId
from allocator.integrations.django.fields import FACE, AllocatedBigAutoField
from allocator.public_ids import PublicIds


def public_id_converter(public: PublicIds) -> type:
    """A path converter: the text of a public id in the URL, its number in the view.

        register_converter(public_id_converter(orders), "order")
        path("orders/<order:order_id>", show_order)

    A text that `public` never makes is no match, so the answer is 404.
    """

    class PublicIdConverter:
        regex = "[^/]+"

        def to_python(self, value: str) -> int:
            return public.decode(value)

        def to_url(self, value: int) -> str:
            return public.encode(value)

    return PublicIdConverter


class PublicBigAutoField(AllocatedBigAutoField):
    """An `AllocatedBigAutoField` that is text in Python, and so in URLs, forms and fixtures; a bigint in the table.

        id = PublicBigAutoField(public=PublicIds(key, prefix="ord_"))

    Queries take the text or the number, and foreign keys to it are text as well. In migrations it is an
    `AllocatedBigAutoField`: they hold no key.
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
        """For the models of migrations."""
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
