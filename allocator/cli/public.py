"""`allocator public`."""

from __future__ import annotations

import click

from allocator.cli.options import from_environment
from allocator.cli.output import CommandGroup, json_option, show
from allocator.public_ids import PublicIds

KEY_VARIABLE = "ALLOCATOR_PUBLIC_KEY"


@click.group(cls=CommandGroup)
def public() -> None:
    """Find the id behind a text of PublicIds, as in a URL.

    ALLOCATOR_PUBLIC_KEY holds the key in hexadecimal digits. Older keys, which still decode, may follow after a blank.
    The prefix must be that of the application.
    """


@public.command("decode")
@click.argument("texts", metavar="TEXT...", nargs=-1, required=True)
@click.option("--prefix", default="", help="Prefix of the text, such as ord_.")
@json_option
def decode(texts: tuple[str, ...], prefix: str) -> None:
    """Print the id of each TEXT.

    A text that was made with another key is refused.

    \b
    Examples:
        allocator public decode ord_VlB9y1FQl8T1ZIG3 --prefix ord_
    """
    keys = (from_environment(KEY_VARIABLE) or "").split()
    if not keys:
        raise click.UsageError(f"{KEY_VARIABLE} is not set; PublicIds.new_key() makes a key")
    known = PublicIds(keys[0], old_keys=keys[1:], prefix=prefix)
    ids = [str(known.decode(one)) for one in texts]
    show({"ids": ids}, "\n".join(ids))
