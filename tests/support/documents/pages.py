"""The documents as data: their blocks of code, headings and links."""

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import allocator

ROOT = Path(allocator.__file__).parent.parent
README = ROOT / "README.md"

RUN = ("python", "console", "sh", "sql")
PARSED = ("toml", "ini", "yaml", "json")
NOT_RUN = "text"
"""Needs a reason, in a comment on the line before: `<!-- not run: … -->`."""

FENCE = re.compile(r"^(?P<in> *)```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^(?P=in)```$", re.DOTALL | re.MULTILINE)
REASON = re.compile(r"<!-- not run: ((?:(?!-->).)+) -->\n+\Z", re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
INDENTED = re.compile(r"(?:\A|\n)\n(?: {4}|\t)\S")


@dataclass(frozen=True, slots=True)
class Block:
    """reason: why it is not run, where the page says so."""

    page: Path
    line: int
    language: str
    text: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    return [README, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*/README.md"))]


def blocks(page: Path) -> list[Block]:
    source = page.read_text()
    return [block_at(page, source, found) for found in FENCE.finditer(source)]


def block_at(page: Path, source: str, found: re.Match[str]) -> Block:
    before = source[: found.start()]
    reason = REASON.search(before)
    line = before.count("\n") + 1
    return Block(page, line, found["language"], dedent(found["text"]), " ".join(reason[1].split()) if reason else "")


def prose(page: Path) -> str:
    """A page without its blocks."""
    return FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    return LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """As GitHub names the headings; of several that are alike, the first."""
    return {slug(found) for found in HEADING.findall(prose(page))}


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def all_words() -> str:
    """Everything that is said anywhere."""
    return "\n".join(page.read_text() for page in pages())


def commands_named() -> list[str]:
    """What comes behind `allocator` in blocks, and in code within sentences."""
    in_blocks = [block.text for page in pages() for block in blocks(page) if block.language != "python"]
    in_sentences = "\n".join(map(prose, pages()))
    return [
        *re.findall(r"(?:^(?:\$ )?|\$\(|/bin/)allocator ([a-z][^\n]*)", "\n".join(in_blocks), re.MULTILINE),
        *re.findall(r"`allocator ([a-z][^`\n]*)", in_sentences),
    ]


# -- the statements of docs/operating.md that give users their rights, for users of other names


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
