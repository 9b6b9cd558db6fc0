"""The statements of docs/operating.md that give users their rights, for users of other names."""

from __future__ import annotations

from support.documents.pages import ROOT, blocks

SERVICE, TOKENS, OWNER = "shop_ids", "shop_ids_tokens", "shop_ids_owner"
SCHEMES = {"postgres": "postgresql", "mysql": "mysql", "mariadb": "mysql"}


def granted(kind: str, example: str, name: str, database: str = "") -> list[str]:
    """What the user `example` of the page is granted, for a user `name` in a database."""
    page = [block.text for block in blocks(ROOT / "docs" / "operating.md") if block.language == "sql"]
    text = "".join(one for one in page if one.startswith(f"-- on {SCHEMES[kind]}+"))
    statements = [words for line in text.splitlines() if (words := line.partition(";")[0]).startswith("GRANT ")]
    user = {"postgres": "{}"}.get(kind, "'{}'@'%'")
    pairs = [(words, to.split(", ")) for words, _, to in (one.partition(" TO ") for one in statements)]
    found = [words for words, users in pairs if user.format(example) in users]
    assert found, f"the page grants nothing to {example}"
    return [f"{one.replace(' ids.*', f' {database}.*')} TO {user.format(name)}" for one in found]
