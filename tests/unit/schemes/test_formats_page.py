"""The table of formats in docs/reference.md is what the library has."""

from __future__ import annotations

from support.documents.pages import ROOT

from allocator.schemes.formats.bit_layout import Format
from allocator.schemes.formats.known_formats import FORMATS, GENERATED

REFERENCE = ROOT / "docs" / "reference.md"


def row(name: str, form: Format) -> str:
    _, *widths = form.layout.widths.items()
    fields = ", ".join(f"{field} {width}" for field, width in widths)
    ids = f"{1 << form.layout.widths[form.counter]:,} in {form.tick / 1000:g} s"
    return f"| `{name}` | {fields} | {form.ends:%Y-%m-%d} | {form.worker_bits} | {ids} |"


def test_the_table_of_formats_is_what_the_library_has():
    rows = {name: row(name, FORMATS[name]) for name in GENERATED if name not in ("snowflake", "baidu")}
    page = REFERENCE.read_text()

    assert [line for line in rows.values() if line not in page] == []
    assert page.count("| `twitter` |") == 1
