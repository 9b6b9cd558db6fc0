"""What the admin asks of an application: a model for its page of tags. It has no table."""

from __future__ import annotations

from django.db import models  # type: ignore[import-untyped]


class Tag(models.Model):  # type: ignore[misc]
    name = models.CharField(primary_key=True, max_length=64)

    class Meta:
        managed = False
        default_permissions = ("view",)
