"""What requests and answers hold: FastAPI reads requests by these, and describes both in OpenAPI."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from allocator.remote.wire import gap_from_json, seen_from_text
from allocator.schemes.formats.bit_layout import Layout, layout_from_text
from allocator.schemes.formats.id_inspection import SCHEMES
from allocator.schemes.formats.known_formats import FORMATS
from allocator.schemes.shared.argument_checks import JAVASCRIPT_MAX_ID, MAX_ID, MAX_IDS_A_CALL, MAX_STEP, check_tag
from allocator.schemes.shared.residues import Seen
from allocator.schemes.snowflake import SNOWFLAKE
from allocator.schemes.tag import DEFAULT_MAX_STEP
from allocator.schemes.worker_number_lease import BITS, MAX_BITS, MIN_SECONDS
from allocator.service.served_tags import MAX_PAGE

PAGE = 100
WORKERS = (SNOWFLAKE.limit("datacenter") + 1) * (SNOWFLAKE.limit("worker") + 1)
MAX_LEASE = 600_000
"""Milliseconds of the longest lease. It limits how long a client that leases all workers can block others."""

DIGITS = re.compile("[0-9]{1,99}|-[1-9][0-9]{0,98}")
"""Those of too small and too large numbers too: the refusal of such a number names the bound."""


def plain(value: object) -> object:
    """Refuse what Pydantic takes beside a whole number and its digits: true, 5.0, " 5", 1_000."""
    if isinstance(value, bool | float) or (isinstance(value, str) and not DIGITS.fullmatch(value)):
        raise ValueError("be a whole number")
    return value


def either(value: object) -> object:
    """Refuse what Pydantic takes beside true and false: yes, on, 1."""
    if not isinstance(value, bool) and value not in ("true", "false"):
        raise ValueError("be true or false")
    return value


PLAIN = BeforeValidator(plain)
"""Stands behind bounds, which Pydantic describes only where they stand before it."""
Whole = Annotated[int, PLAIN]
Flag = Annotated[bool, BeforeValidator(either)]
Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$", examples=["order"]), BeforeValidator(check_tag)
]
Text = Annotated[
    str, WithJsonSchema({"type": "string", "pattern": "^[0-9A-Za-z-]{1,64}$", "examples": ["5016762319896585"]})
]
"""An id in one of its forms, which `inspect_id` checks."""
Step = Annotated[int, Field(ge=1, le=MAX_STEP), PLAIN]
Long = Annotated[
    int,
    Field(ge=0, le=MAX_ID),
    PLAIN,
    WithJsonSchema({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,19}$"}]}),
]
"""A number above 2**53, which JavaScript clients must send as text."""
Millisecond = Annotated[int, Field(ge=0, le=2**53), PLAIN]
"""Up to 2**53 JavaScript reads a JSON number exactly."""
Unsent = SkipJsonSchema[None]
"""Of a field without a default; nobody can send it in a query."""
Holder = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
SEEN = WithJsonSchema({"type": "string", "pattern": r"^([0-9]+\.[0-9]+\.[0-9]+(,[0-9]+\.[0-9]+\.[0-9]+)*)?$"})
FORMAT = f"^({'|'.join(FORMATS)})(:[0-9]+(/[0-9]+)+)?$"
LAYOUT = WithJsonSchema({"type": "string", "pattern": "^[0-9]+(/[0-9]+){4}$"})


def without_defaults(schema: dict[str, Any]) -> None:
    """Describe no defaults: a client that sends them would change what it leaves out."""
    for described in schema["properties"].values():
        described.pop("default", None)


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid")

    def given(self) -> dict[str, Any]:
        """The fields that were sent."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class Count(Form):
    count: Whole = Field(1, ge=1, le=MAX_IDS_A_CALL, description="Number of ids.", examples=[2])


class Wanted(Form):
    size: Step | Unsent = Field(None, description="Number of ids; default the tag's step. The response may have fewer.")
    exact: Flag = Field(False, description="true: exactly `size` ids, or an error.")
    seen: Annotated[Seen, PlainValidator(seen_from_text), SEEN] = Field(
        default_factory=dict,
        description="The greatest id received from each shard, as offset.step.id; the segment is above it.",
    )


class Pages(Form):
    after: Name = Field(default_factory=str, description="Start after this tag: the `next` of the previous page.")
    limit: Whole = Field(PAGE, ge=1, le=MAX_PAGE, description="Number of tags.")


class Format(Form):
    scheme: Literal[SCHEMES] | Unsent = Field(None, description="Read the id only as this scheme.")  # type: ignore[valid-type]
    epoch: Long | Unsent = Field(None, description="Epoch of the id, in its unit: seconds or milliseconds since 1970.")
    layout: Annotated[str | None, WithJsonSchema({"type": "string", "pattern": FORMAT})] = Field(
        None,
        description="Read a number only by this layout: a name, or a name and widths, such as meteor:1/31/18/11/3.",
    )


class Settings(Form):
    model_config = ConfigDict(json_schema_extra=without_defaults)

    step: Step = Field(1000, description="Smallest number of ids per claim.")
    max_step: Step = Field(DEFAULT_MAX_STEP, description="Largest number of ids per claim.")
    limit: Long = Field(MAX_ID, description="Greatest id of the tag.", examples=[str(JAVASCRIPT_MAX_ID)])
    start_after: Long = Field(0, description="Claim only ids above this; never goes back. Those in memory are issued.")
    failover_gap: Annotated[Literal["auto", "refuse"] | Long, BeforeValidator(gap_from_json)] = Field(
        "auto", description="Ids to skip after a failover or a restore: a number, by those issued so far, or stop."
    )


class LeaseWanted(Form):
    layout: Annotated[Layout, PlainValidator(partial(layout_from_text, like=SNOWFLAKE)), LAYOUT] = Field(
        description="Widths of the fields.", examples=["1/41/5/5/12"]
    )
    epoch: Millisecond = Field(description="Epoch of the ids, in milliseconds since 1970.", examples=[1288834974657])
    now: Millisecond = Field(description="The client's clock, in milliseconds since 1970.", examples=[1790000000000])
    until: Millisecond = Field(description="End of the lease, by the same clock.", examples=[1790000010000])


class Renewal(LeaseWanted):
    worker: Annotated[int, Field(ge=0, lt=WORKERS), PLAIN] = Field(
        description="As in the answer to the lease.", examples=[0]
    )
    holder: Holder = Field(description="As in the answer to the lease.", examples=["3f1d0a5c8e9b4d27a6c1f0e2b7d49853"])
    since: Millisecond = Field(description="As in the answer to the lease.", examples=[1790000000000])


class NumberTimes(Form):
    seconds: float = Field(
        strict=True,
        ge=MIN_SECONDS,
        le=MAX_LEASE / 1000,
        description="Seconds of the lease, the same in a space.",
        examples=[60],
    )
    now: Millisecond = Field(
        description="The client's clock, in milliseconds since 1970, before the request; with release: its last use.",
        examples=[1790000000000],
    )


class NumberWanted(NumberTimes):
    bits: Whole = Field(BITS, ge=1, le=MAX_BITS, description="Width of the number, the same for all of a space.")
    host: str = Field(
        default_factory=str, pattern="^[ -~]{1,255}$", description="Where the client runs, for the operator."
    )
    process: Millisecond = Field(0, description="The client's process id, for the operator.")


class NumberRenewal(NumberTimes):
    number: Annotated[int, Field(ge=0, lt=1 << MAX_BITS), PLAIN] = Field(
        description="As in the answer to the lease.", examples=[0]
    )
    holder: Holder = Field(description="As in the answer to the lease.", examples=["3f1d0a5c8e9b4d27a6c1f0e2b7d49853"])
    release: Flag = Field(False, description="true: give the number back.")


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


Digits = Annotated[str, Field(pattern="^[0-9]{1,19}$")]
"""An id is a string, since a browser reads the number 9007199254740993 as 9007199254740992."""
Natural = Annotated[int, Field(ge=0)]


class Ids(Answer):
    ids: list[Digits] = Field(examples=[["5016762319896585", "5016762319896596"]])


class ObjectIds(Answer):
    ids: list[Annotated[str, Field(pattern="^[0-9a-f]{24}$")]] = Field(examples=[["65f1c0ffee5ca1ab1e000001"]])


class TaggedIds(Answer):
    tag: str = Field(examples=["order"])
    ids: list[Digits] = Field(examples=[["1", "2"]])


class Segment(Answer):
    tag: str = Field(examples=["order"])
    start: Digits = Field(examples=["1"])
    stop: Digits = Field(examples=["1001"])
    step: Digits = Field(examples=["1"])


class Ticket(Answer):
    type: str = Field(examples=["case"])
    id: Digits = Field(examples=["1"])


class Node(Answer):
    node: Digits = Field(examples=["1"])


class Lease(Answer):
    worker: Natural
    holder: str = Field(examples=["3f1d0a5c8e9b4d27a6c1f0e2b7d49853"])
    since: Natural = Field(examples=[1790000000000])
    until: Natural = Field(examples=[1790000010000])


class NumberLease(Answer):
    space: str = Field(examples=["billing"])
    number: Natural
    holder: str = Field(examples=["3f1d0a5c8e9b4d27a6c1f0e2b7d49853"])
    until: Natural = Field(examples=[1790000060000])


class Tag(Answer):
    tag: str = Field(examples=["order"])
    max_value: Digits = Field(examples=["1000"])
    step: Natural = Field(examples=[1000])
    max_step: Natural = Field(examples=[1_000_000])
    limit: Digits = Field(examples=["9223372036854775807"])
    failover_gap: str = Field(pattern="^([0-9]{1,19}|auto|refuse)$", examples=["auto"])


class Tags(Answer):
    tags: list[Tag]
    next: str = Field("", description="Only on a full page.")


class Reading(Answer):
    scheme: str = Field(examples=["meteor"])
    likely: bool
    why: str = Field(examples=["its time would be 2020-12-13 09:06:54+00:00"])
    fields: dict[str, str] = Field(examples=[{"second": "292014", "node": "0", "sequence": "1", "random": "1"}])
    time: str | None = Field(examples=["2020-12-13T09:06:54+00:00"])
    cannot_tell: str


class Inspection(Answer):
    id: str = Field(examples=["5016762319896585"])
    readings: list[Reading]


class Problem(Answer):
    type: str = Field(examples=["urn:allocator:InvalidCount"])
    title: str = Field(examples=["Bad Request"])
    status: Natural = Field(examples=[400])
    error: str = Field(examples=["InvalidCount"])
    detail: str = Field(examples=["count must be greater than or equal to 1, got '0'"])
    request: str = Field(examples=["4fd5c1a9b0e2"])
