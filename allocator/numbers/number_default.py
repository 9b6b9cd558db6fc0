"""A number as the default of a mapped column: drawn at the flush, on the connection that inserts the row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer

from allocator.errors import InvalidArgument, InvalidSetting
from allocator.generators.column_default import check_each_row

if TYPE_CHECKING:
    from allocator.numbers import Numbers


class NumberDefault:
    """What `Numbers.default` returns; SQLAlchemy calls it with the context of an INSERT, once for each row."""

    def __init__(self, numbers: Numbers, scope: str | None, at: str | None) -> None:
        self._numbers, self._scope, self._at = numbers, scope, at

    def __call__(self, context: Any, /) -> int | str:
        name = self._numbers.rule.name
        try:
            check_each_row(context, name)
        except InvalidSetting:
            raise InvalidSetting(
                f"numbers of {name!r}: all rows of this statement would get the same one; insert the rows one by one"
            ) from None
        row = context.get_current_parameters()
        number = self._numbers.next(
            context.root_connection,
            "" if self._scope is None else self._value(row, self._scope),
            None if self._at is None else self._value(row, self._at),
        )
        return number.n if isinstance(context.current_column.type, Integer) else number.text

    def _value(self, row: Any, column: str) -> Any:
        found = row.get(column)
        if found is None:
            raise InvalidArgument(
                f"numbers of {self._numbers.rule.name!r} need the column {column!r}, and this row has no value in it"
            )
        return found
