"""A model without a table, which the admin needs for its page of tags."""

from __future__ import annotations

from django.db import models  # type: ignore[import-untyped]


class Tag(models.Model):  # type: ignore[misc]
    name = models.CharField(primary_key=True, max_length=64)

    class Meta:
        managed = False
        default_permissions = ("view",)
