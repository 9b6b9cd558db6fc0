"""Parameters in docstrings, as lists: `count: how many ids` at the beginning of a line is one of these."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

PARAMETER = re.compile(r"^(?P<names>[a-z]\w*(?:, [a-z]\w*)*): (?=\S)", re.MULTILINE)


class Parameters(Extension):
    """Loaded by mkdocstrings, see `mkdocs.yml`."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = listed(obj.docstring.value)


def listed(text: str) -> str:
    paragraphs = text.split("\n\n")
    return "\n\n".join(PARAMETER.sub(r"- **\g<names>**: ", one) if PARAMETER.match(one) else one for one in paragraphs)
