"""The table of all routes: the source of routing, checks, rights and OpenAPI."""

from __future__ import annotations

from functools import partial

from allocator.errors import InvalidCount
from allocator.remote.wire import gap_from_json, holder_of, host_of, seen_from_text
from allocator.rules.token import ADMINISTER, DRAW, READ
from allocator.schemes.formats.bit_layout import layout_from_text
from allocator.schemes.formats.id_inspection import SCHEMES
from allocator.schemes.formats.known_formats import FORMATS
from allocator.schemes.shared.argument_checks import JAVASCRIPT_MAX_ID, MAX_ID, MAX_IDS_A_CALL, MAX_STEP, check_tag
from allocator.schemes.snowflake import SNOWFLAKE as SNOWFLAKE_LAYOUT
from allocator.schemes.worker_number_lease import MAX_BITS, MIN_SECONDS, length_of
from allocator.service import schemas
from allocator.service.dispatch import Route
from allocator.service.handlers import MAX_LEASE, PAGE, Administration, Ids
from allocator.service.id_sources import METEOR, OBJECTID, SNOWFLAKE
from allocator.service.parameters import Field, choice, flag, long_number, number, required, text
from allocator.service.served_tags import MAX_PAGE

TAG_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$"
MAX_MILLISECOND = 2**53
"""Up to here JavaScript reads a JSON number exactly."""

COUNT = number("count", 1, MAX_IDS_A_CALL, "Number of ids; default 1.", error=InvalidCount, example=2)
SIZE = number(
    "size",
    1,
    MAX_STEP,
    "Number of ids; default the tag's step. The response may have fewer.",
    error=InvalidCount,
    example=1000,
)
EXACT = flag("exact", "true: exactly `size` ids, or an error.")
SEEN = text(
    "seen",
    seen_from_text,
    r"^([0-9]+\.[0-9]+\.[0-9]+(,[0-9]+\.[0-9]+\.[0-9]+)*)?$",
    "The greatest id received from each shard, as offset.step.id; the segment is above it even after a restore.",
)
PAGES = (
    text("after", check_tag, TAG_PATTERN, "Start after this tag: the `next` of the previous page."),
    number("limit", 1, MAX_PAGE, f"Number of tags; default {PAGE}."),
)
SCHEME = choice("scheme", SCHEMES, "Read the id only as this scheme.")
EPOCH = number("epoch", 0, MAX_ID, "Epoch of the id, in its unit: seconds or milliseconds since 1970.")
LAYOUT = text(
    "layout",
    str,
    f"^({'|'.join(FORMATS)})(:[0-9]+(/[0-9]+)+)?$",
    "Read a number only by this layout: a name, or a name and widths, such as meteor:1/31/18/11/3.",
)
widths = partial(layout_from_text, like=SNOWFLAKE_LAYOUT)
SETTINGS = (
    number("step", 1, MAX_STEP, "Smallest number of ids per claim.", example=1000),
    number("max_step", 1, MAX_STEP, "Largest number of ids per claim.", example=100_000),
    long_number("limit", 1, MAX_ID, "Greatest id of the tag.", str(JAVASCRIPT_MAX_ID)),
    long_number(
        "start_after", 0, MAX_ID, "Claim only ids above this; never goes back. Ids already in memory are still issued."
    ),
    Field(
        "failover_gap",
        gap_from_json,
        {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^([0-9]{1,19}|auto|refuse)$"}]},
        'Ids to skip after a failover or a restore. "auto": by the ids issued so far. "refuse": stop the tag.',
        example="auto",
    ),
)
LEASED = schemas.LEASE["examples"][0]
LEASE = (
    required(
        text("layout", widths, "^[0-9]+(/[0-9]+){4}$", "Widths of the fields, such as 1/41/5/5/12."), "1/41/5/5/12"
    ),
    required(number("epoch", 0, MAX_MILLISECOND, "Epoch of the ids, in milliseconds since 1970."), 1288834974657),
    required(number("now", 0, MAX_MILLISECOND, "The client's clock, in milliseconds since 1970."), LEASED["since"]),
    required(number("until", 0, MAX_MILLISECOND, "End of the lease, by the same clock."), LEASED["until"]),
)
RENEWAL = (
    *LEASE,
    required(text("holder", holder_of, "^[0-9a-f]{32}$", "The holder in the response to the lease."), LEASED["holder"]),
    required(number("since", 0, MAX_MILLISECOND, "The since in the response to the lease."), LEASED["since"]),
)

HELD = (
    required(
        Field(
            "seconds",
            length_of,
            {"type": "number", "minimum": MIN_SECONDS, "maximum": MAX_LEASE / 1000},
            "Length of the lease, the same for all processes of a space.",
        ),
        60,
    ),
    required(
        number(
            "now",
            0,
            MAX_MILLISECOND,
            "The client's clock, in milliseconds since 1970, read before the request; with release: the last "
            "millisecond in which the number was used.",
        ),
        LEASED["since"],
    ),
    number("bits", 1, MAX_BITS, "Width of the number, the same for all processes of a space; default 10.", example=10),
    text("host", host_of, "^[ -~]{1,255}$", "Where the client runs, for the operator."),
    number("process", 0, MAX_MILLISECOND, "The client's process id, for the operator."),
    number("number", 0, (1 << MAX_BITS) - 1, "To renew or release: the number in the response to the lease."),
    text("holder", holder_of, "^[0-9a-f]{32}$", "To renew or release: the holder in the response to the lease."),
    flag("release", "true: give the number back."),
)


IDS, CLIENTS, INSPECT, TAGS = ("Draw ids", "For client libraries", "Inspect ids", "Manage tags")


def table(ids: Ids, tags: Administration) -> list[Route]:
    post, sequence, lease = "POST", "/v1/sequences/{tag}", schemas.LEASE
    return [
        Route(IDS, post, f"{sequence}/ids", ids.of_tag, schemas.TAGGED_IDS, DRAW, query=(COUNT,)),
        Route(IDS, post, "/v1/tickets/{type}", ids.ticket, schemas.TICKET, DRAW),
        Route(IDS, post, "/v1/meteor", ids.meteor, schemas.METEORS, DRAW, METEOR, (COUNT,)),
        Route(IDS, post, "/v1/snowflake", ids.snowflake, schemas.SNOWFLAKES, DRAW, SNOWFLAKE, (COUNT,)),
        Route(IDS, post, "/v1/objectids", ids.objectids, schemas.OBJECT_IDS, DRAW, OBJECTID, (COUNT,)),
        Route(CLIENTS, post, f"{sequence}/segments", ids.segment, schemas.SEGMENT, DRAW, query=(SIZE, EXACT, SEEN)),
        Route(CLIENTS, post, "/v1/nodes", ids.node, schemas.NODE, DRAW, METEOR),
        Route(CLIENTS, post, "/v1/workers", ids.lease, lease, DRAW, SNOWFLAKE, body=LEASE),
        Route(CLIENTS, post, "/v1/workers/{space}", ids.number, schemas.NUMBER_LEASE, DRAW, body=HELD),
        Route(CLIENTS, "PUT", "/v1/workers/{space}", ids.renew, lease, DRAW, SNOWFLAKE, body=RENEWAL),
        Route(INSPECT, "GET", "/v1/inspect/{id}", ids.inspect, schemas.INSPECTION, query=(SCHEME, EPOCH, LAYOUT)),
        Route(TAGS, "GET", "/v1/sequences", tags.list, schemas.TAGS, READ, query=PAGES),
        Route(TAGS, "GET", sequence, tags.get, schemas.TAG),
        Route(TAGS, "PUT", sequence, tags.put, schemas.TAG, ADMINISTER, body=SETTINGS, created=True),
    ]


PATHS = {
    "tag": (TAG_PATTERN, "order"),
    "type": (TAG_PATTERN, "case"),
    "space": (TAG_PATTERN, "0"),
    "id": (r"^[0-9A-Za-z-]{1,64}$", "5016762319896585"),
}
