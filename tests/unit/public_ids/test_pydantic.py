"""Public ids as types of Pydantic and FastAPI: text outside, the id or the checked text inside."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Annotated, Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter, ValidationError

from allocator import PublicIds
from allocator.errors import InvalidSetting

orders = PublicIds(bytes(range(32)), prefix="ord_")
OrderId = Annotated[int, orders]
OrderText = Annotated[str, orders]
ONE, MISTYPED, SHORT = orders.encode(1), "ord_I9UOBqekNF7q8z1n", "ord_I9UOBqekNF7q8z"
WRONG = [MISTYPED, SHORT, "1", "", 1, True, None, 1.0, PublicIds(bytes(32), prefix="ord_").encode(1)]


class Order(BaseModel):
    id: OrderId
    before: OrderId | None = None


def test_an_int_is_the_id_inside_and_text_in_json():
    order = Order.model_validate_json(json.dumps({"id": ONE, "before": orders.encode(7)}))

    assert (order.id, order.before) == (1, 7)
    assert order.model_dump() == {"id": 1, "before": 7}
    assert json.loads(order.model_dump_json()) == {"id": ONE, "before": orders.encode(7)}
    assert json.loads(Order(id=ONE).model_dump_json()) == {"id": ONE, "before": None}  # type: ignore[arg-type]


def test_a_str_is_the_text_once_it_is_checked():
    adapter = TypeAdapter(OrderText)

    assert adapter.validate_python(ONE) == ONE
    assert adapter.dump_json(ONE) == f'"{ONE}"'.encode()


def test_what_encode_never_makes_is_refused(subtests):
    """Plain numbers too, or else whoever sends a request could count."""
    for kind in [OrderId, OrderText]:
        for wrong in WRONG:
            with subtests.test(kind=kind, wrong=wrong):
                adapter = TypeAdapter(kind)
                for validate, given in ((adapter.validate_python, wrong), (adapter.validate_json, json.dumps(wrong))):
                    with pytest.raises(ValidationError):
                        validate(given)


def test_the_message_is_that_of_decode():
    with pytest.raises(ValidationError, match=f"'{MISTYPED}' was altered or mistyped, or made with another key"):
        Order(id=MISTYPED)  # type: ignore[arg-type]


def test_the_schema_says_text_of_its_length():
    for mode in ["validation", "serialization"]:
        for kind in [OrderId, OrderText]:
            assert TypeAdapter(kind).json_schema(mode=mode) == {"type": "string", "minLength": 20, "maxLength": 20}, (
                mode,
                kind,
            )


def test_any_other_type_is_refused_when_the_model_is_made():
    with pytest.raises(InvalidSetting, match=r"Annotated\[int, …\] or Annotated\[str, …\], got <class 'float'>"):
        TypeAdapter(Annotated[float, orders])


app = FastAPI()


@app.get("/orders/{id_}")
async def read(id_: OrderId, after: OrderId | None = None) -> list[int | None]:
    return [id_, after]


@app.post("/orders")
async def change(order: Order) -> Order:
    return order


def ask(method: str, path: str, query: str = "", body: object = None) -> tuple[int, Any]:
    """One request, as ASGI."""
    sent: list[Any] = []
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "path_params": {}}
    scope |= {"headers": [(b"content-type", b"application/json")], "http_version": "1.1", "root_path": ""}

    async def receive() -> Any:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_fastapi_reads_ids_out_of_paths_queries_and_bodies():
    assert ask("GET", f"/orders/{ONE}", f"after={orders.encode(9)}") == (200, [1, 9])
    assert ask("POST", "/orders", body={"id": ONE}) == (200, {"id": ONE, "before": None})


def test_fastapi_answers_422():
    for wrong in ["1", MISTYPED]:
        assert ask("GET", f"/orders/{wrong}")[0] == 422, wrong
        assert ask("GET", f"/orders/{ONE}", f"after={wrong}")[0] == 422, wrong
        assert ask("POST", "/orders", body={"id": wrong})[0] == 422, wrong


def test_fastapi_describes_the_path():
    (path, *_) = app.openapi()["paths"]["/orders/{id_}"]["get"]["parameters"]

    assert path["schema"] == {"type": "string", "minLength": 20, "maxLength": 20, "title": "Id "}


def test_public_ids_need_no_pydantic():
    code = (
        "import sys; sys.modules['pydantic_core'] = None; from allocator import PublicIds as P; P(bytes(16)).encode(1)"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
