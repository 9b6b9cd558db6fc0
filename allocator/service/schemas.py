"""What requests and answers hold: FastAPI reads requests by these, and describes both in OpenAPI."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)

from allocator.errors import InvalidCount
from allocator.remote.wire import gap_from_json, seen_from_text, whole
from allocator.schemes.formats.id_inspection import FORMATS, SCHEMES
from allocator.schemes.shared.argument_checks import JAVASCRIPT_MAX_ID, MAX_STEP, check_tag, check_whole
from allocator.schemes.shared.residues import Seen
from allocator.schemes.worker_number_lease import BITS, MAX_BITS, MAX_SECONDS, MIN_SECONDS, SNOWFLAKE
from allocator.service.served_ids import MAX_COUNT, MAX_PAGE, SEGMENT

PAGE = 100


def digits(value: object, info: ValidationInfo) -> int:
    """Read a whole number in JSON, or its digits."""
    return whole(str(info.field_name), value)


Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$", examples=["order"]), BeforeValidator(check_tag)
]
SpaceName = Annotated[
    str,
    Field(pattern=rf"^({SNOWFLAKE}|[A-Za-z0-9][A-Za-z0-9_.:-]{{0,63}})$", examples=["billing"]),
    BeforeValidator(lambda space: space if space == SNOWFLAKE else check_tag(space)),
]
Text = Annotated[
    str, WithJsonSchema({"type": "string", "pattern": "^[0-9A-Za-z-]{1,64}$", "examples": ["5016762319896585"]})
]
"""An id in one of its forms, which `inspect_id` checks."""
Step = Annotated[int, Field(ge=1, le=MAX_STEP)]
Long = Annotated[
    int,
    BeforeValidator(digits),
    WithJsonSchema({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,19}$"}]}),
]
"""A number above 2**53, which JavaScript clients must send as text."""
Millisecond = Annotated[int, Field(ge=0, le=2**53)]
"""Up to 2**53 JavaScript reads a JSON number exactly."""
Holder = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
SEEN = WithJsonSchema({"type": "string", "pattern": r"^([0-9]+\.[0-9]+\.[0-9]+(,[0-9]+\.[0-9]+\.[0-9]+)*)?$"})
COUNT = AfterValidator(partial(check_whole, "count", low=1, high=MAX_COUNT, error=InvalidCount))


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid")

    def given(self) -> dict[str, Any]:
        """The fields that were sent."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class Body(Form):
    """JSON, in which 5 is a number and "5" and true are none. In a query everything is text."""

    model_config = ConfigDict(strict=True)


class Count(Form):
    count: Annotated[int, COUNT] = Field(
        1, description="Number of ids.", examples=[2], json_schema_extra={"minimum": 1, "maximum": MAX_COUNT}
    )


class Wanted(Form):
    size: Step = Field(SEGMENT, description="Number of ids. The response may have fewer.")
    exact: bool = Field(False, description="true: exactly `size` ids, or an error.")
    seen: Annotated[Seen, PlainValidator(seen_from_text), SEEN] = Field(
        default_factory=dict,
        description="The greatest id received from each slot, as offset.step.id; the segment is above it.",
    )


class Pages(Form):
    after: Name = Field(default_factory=str, description="Start after this tag: the `next` of the previous page.")
    limit: int = Field(PAGE, ge=1, le=MAX_PAGE, description="Number of tags.")


class Format(Form):
    scheme: Literal[SCHEMES] | None = Field(None, description="Read the id only as this scheme.")  # type: ignore[valid-type]
    epoch: Long | None = Field(None, description="Epoch of the id, in its unit: seconds or milliseconds since 1970.")
    layout: Annotated[str | None, WithJsonSchema({"type": "string", "enum": list(FORMATS)})] = Field(
        None, description="Read a number only by this layout."
    )


class Settings(Body):
    # Without defaults: a client that sent those of the description would change what it leaves out.
    step: Step = Field(default_factory=int, description="Smallest number of ids per claim.")
    max_step: Step = Field(default_factory=int, description="Largest number of ids per claim.")
    limit: Long = Field(default_factory=int, description="Greatest id of the tag.", examples=[str(JAVASCRIPT_MAX_ID)])
    start_after: Long = Field(
        default_factory=int, description="Claim only ids above this; never goes back. Those in memory are issued."
    )
    failover_gap: Annotated[Literal["auto", "refuse"] | Long, BeforeValidator(gap_from_json)] = Field(
        default_factory=int,
        description="Ids to skip after a failover or a restore: a number, by those issued so far, or stop.",
    )


class NumberTimes(Body):
    seconds: float = Field(
        ge=MIN_SECONDS,
        le=MAX_SECONDS,
        description="Seconds of the lease, the same in a space.",
        examples=[60],
    )
    now: Millisecond = Field(
        description="The client's clock, in milliseconds since 1970, before the request; with release: its last use.",
        examples=[1790000000000],
    )


class NumberWanted(NumberTimes):
    bits: int = Field(BITS, ge=1, le=MAX_BITS, description="Width of the number, the same for all of a space.")
    host: str = Field(
        default_factory=str, pattern="^[ -~]{1,255}$", description="Where the client runs, for the operator."
    )
    process: Millisecond = Field(0, description="The client's process id, for the operator.")
    format: str = Field("", pattern="^([0-9/]{9,40} [0-9]{1,16})?$", description="Of @snowflake: layout and epoch.")


class NumberRenewal(NumberTimes):
    number: Annotated[int, Field(ge=0, lt=1 << MAX_BITS)] = Field(
        description="As in the answer to the lease.", examples=[0]
    )
    holder: Holder = Field(description="As in the answer to the lease.", examples=["3f1d0a5c8e9b4d27a6c1f0e2b7d49853"])
    release: bool = Field(False, description="true: give the number back.")


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


class NumberLease(Answer):
    space: str = Field(examples=["billing"])
    number: Natural
    holder: str = Field(examples=["3f1d0a5c8e9b4d27a6c1f0e2b7d49853"])
    until: Natural = Field(examples=[1790000060000])


class Tag(Answer):
    tag: str = Field(examples=["order"])
    max_value: Digits = Field(examples=["1000"])
    step: Natural = Field(examples=[10])
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
    detail: str = Field(examples=["count must be 1 to 1000, got 0"])
    request: str = Field(examples=["4fd5c1a9b0e2"])
