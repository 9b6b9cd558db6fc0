"""Django: primary keys from an allocator.

    class Order(models.Model):
        id = AllocatedBigAutoField()

or, for all models of a project, `DEFAULT_AUTO_FIELD = "allocator.integrations.django.AllocatedBigAutoField"`. With
`"allocator.integrations.django"` in `INSTALLED_APPS`, `migrate` also creates the allocator's tables.
"""

from __future__ import annotations

try:
    import django as _django  # type: ignore[import-untyped]  # noqa: F401
except ImportError as error:
    raise ImportError(
        "allocator.integrations.django needs Django, which is not installed; pip install 'segment-allocator[django]'"
    ) from error

from allocator.integrations.django.apps import AllocatorConfig
from allocator.integrations.django.fields import AllocatedBigAutoField, give_ids
from allocator.integrations.django.ids import allocator, use
from allocator.integrations.django.operations import AlterKey

__all__ = [
    "AllocatedBigAutoField",
    "AllocatorConfig",
    "AlterKey",
    "allocator",
    "give_ids",
    "use",
]
