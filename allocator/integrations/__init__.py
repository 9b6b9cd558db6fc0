"""Optional integrations with web frameworks, ORMs and pytest."""

from __future__ import annotations

import allocator.errors  # noqa: F401  # raises where an unrelated project has replaced files of ours
