"""The list of tags in the admin, for staff with the permission `allocator.view_tag`."""

from __future__ import annotations

from typing import Any

from django.contrib import admin  # type: ignore[import-untyped]
from django.core.exceptions import PermissionDenied  # type: ignore[import-untyped]
from django.template.response import TemplateResponse  # type: ignore[import-untyped]
from django.urls import path  # type: ignore[import-untyped]

from allocator.errors import AllocatorError
from allocator.integrations.django.ids import allocator
from allocator.integrations.django.models import Tag


@admin.register(Tag)
class TagAdmin(admin.ModelAdmin):  # type: ignore[misc]
    def get_urls(self) -> list[Any]:
        """Only the list; to change tags, use `manage.py allocator tags`."""
        return [path("", self.admin_site.admin_view(self.changelist_view), name="allocator_tag_changelist")]

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {**self.admin_site.each_context(request), "title": "Tags", "opts": self.opts}
        try:
            context["tags"] = allocator().tags.list()
        except AllocatorError as error:
            context["error"] = str(error)
        return TemplateResponse(request, "allocator/tags.html", context)
