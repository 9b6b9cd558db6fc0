"""The table of formats in docs/reference.md is what the library has."""

from __future__ import annotations

from support.documents.pages import ROOT

from allocator.schemes.formats.bit_layout import Format
from allocator.schemes.formats.known_formats import FORMATS

REFERENCE = ROOT / "docs" / "reference.md"
ALIASES = ("meteor", "snowflake", "baidu")
"""Described elsewhere on the page, or by another name."""


def row(name: str, form: Format) -> str:
    _, *widths = form.layout.widths.items()
    fields = ", ".join(f"{field} {width}" for field, width in widths)
    last = form.layout.runs_out(form.clock, form.time(0), form.per_second)
    return f"| `{name}` | {fields} | {last:%Y-%m-%d} |"


def test_the_table_of_formats_is_what_the_library_has():
    rows = {name: row(name, form) for name, form in FORMATS.items() if name not in ALIASES}
    page = REFERENCE.read_text()

    assert [line for line in rows.values() if line not in page] == []
    assert page.count("| `twitter` |") == 1
