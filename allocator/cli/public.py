"""`allocator public`."""

from __future__ import annotations

from typing import cast

import click

from allocator.cli.options import from_environment, option, options
from allocator.cli.output import CommandGroup, json_option, show
from allocator.public_ids import CHECK, TEXTS, PublicIds, Text
from allocator.schemes.shared.argument_checks import MAX_ID

KEY_VARIABLE = "ALLOCATOR_PUBLIC_KEY"


format_options = options(
    click.option("--prefix", default="", help="Prefix of the text, such as ord_."),
    option("--text", type=click.Choice(TEXTS), default="base62", help="Encoding of the text."),
    option("--check", type=int, default=CHECK, help="Check bits."),
    click.option("--limit", type=int, default=MAX_ID, help="Greatest id."),
    json_option,
)


def public_ids(prefix: str, text: str, check: int, limit: int) -> PublicIds:
    keys = (from_environment(KEY_VARIABLE) or "").split()
    if not keys:
        raise click.UsageError(f"{KEY_VARIABLE} is not set; PublicIds.new_key() makes a key")
    return PublicIds(keys[0], prefix=prefix, text=cast(Text, text), check=check, limit=limit, old_keys=keys[1:])


@click.group(cls=CommandGroup)
def public() -> None:
    """Turn ids into texts that reveal neither volume nor order.

    ALLOCATOR_PUBLIC_KEY holds the key in hexadecimal digits. Older keys, which still decode, may follow after a blank.
    The options must be those of the application.
    """


@public.command("decode")
@click.argument("texts", metavar="TEXT...", nargs=-1, required=True)
@format_options
def decode(texts: tuple[str, ...], prefix: str, text: str, check: int, limit: int) -> None:
    """Print the id of each TEXT.

    A text that was made with another key is refused.

    \b
    Examples:
        allocator public decode ord_VlB9y1FQl8T1ZIG3 --prefix ord_
    """
    known = public_ids(prefix, text, check, limit)
    ids = [str(known.decode(one)) for one in texts]
    show({"ids": ids}, "\n".join(ids))
