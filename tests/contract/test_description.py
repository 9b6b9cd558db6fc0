"""The description at /openapi.json is true: a generator of requests, good and bad, finds no answer that it forbids."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from support.service.served import Guarded, Served

from allocator.schemes.shared.argument_checks import MAX_STEP

CASES = ("--max-examples", "10")
"""Examples of each kind for each route; about 600 requests in all."""
FEW = ("--phases", "fuzzing", "--max-examples", "3")
"""With each change; and with a token, when the answers are the same ones."""
BEYOND_SCHEMAS = "positive_data_acceptance"
"""Bounds between two fields, or to what is claimed, cannot be said in a schema."""


def run_generator(service: Served, folder: Path, *options: str) -> str:
    program = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"
    command = [sys.executable, "-c", program, "run", f"{service.address}/openapi.json", "--no-color"]
    command += ["--exclude-checks", BEYOND_SCHEMAS, "--seed", "1", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(f"sqlite:///{tmp_path_factory.mktemp('described')}/ids.db") as found:
        yield found


@pytest.mark.parametrize("cases", [FEW, pytest.param(CASES, marks=pytest.mark.nightly)], ids=["few", "many"])
def test_no_answer_contradicts_the_description(service, tmp_path, cases):
    report = run_generator(service, tmp_path, *cases)

    assert "13 selected / 13 total" in report
    assert "Traceback" not in service.log()
    assert not [line for line in service.lines() if line.get("status") == 500]


@pytest.mark.nightly
def test_with_a_token_too(tmp_path):
    with Guarded(str(tmp_path)) as guarded:
        run_generator(guarded.service, tmp_path, "--header", f"Authorization: Bearer {guarded.admin}", *FEW)
        assert guarded.admin not in guarded.service.log()


def test_the_description_is_one_of_openapi(service):
    from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

    described = service.get("/openapi.json").json

    assert described["openapi"].startswith("3.1.")
    assert [str(error) for error in OPENAPI_31_VALIDATOR.iter_errors(described)] == []


def test_schemas_have_bounds_that_readers_know_and_defaults_within_them(service):
    """A validator ignores what it does not know, such as `le`."""
    described = service.get("/openapi.json").json
    found = [each for each in within(described) if "type" in each or "anyOf" in each or "oneOf" in each]
    known = {"type", "anyOf", "oneOf", "enum", "minimum", "maximum", "exclusiveMaximum", "pattern", "items"}
    known |= {"properties", "additionalProperties", "required", "default", "description", "examples", "title"}
    schemas = [each for each in found if isinstance(each.get("type", ""), str) and each.get("type") != "http"]

    assert len(schemas) > 100
    for each in schemas:
        assert each.keys() <= known, each
        if "default" in each:
            jsonschema_rs.validate({**each, "components": described["components"]}, each["default"])
    assert described["components"]["schemas"]["Settings"]["properties"]["step"]["maximum"] == MAX_STEP


def within(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a JSON."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from within(each)


def test_every_route_and_status_is_described(service):
    described = service.get("/openapi.json").json
    operations = [one for methods in described["paths"].values() for one in methods.values()]

    assert len(operations) == 13
    assert len({one["operationId"] for one in operations}) == 13
    for one in operations:
        assert {"200", "400", "401", "403", "404", "429", "503"} <= set(one["responses"])
        assert one["summary"]


def test_what_a_request_needs_has_an_example_that_its_schema_allows(service):
    described = service.get("/openapi.json").json
    operations = [one for methods in described["paths"].values() for one in methods.values()]
    examples = [example for one in operations for example in (parameters(one) | (body(described, one) or {})).values()]

    assert len(examples) > 14 + 3
    for one in operations:
        needed = {each["name"] for each in one.get("parameters", ()) if each["required"]}
        assert needed <= parameters(one).keys(), one["operationId"]
        for each in one.get("parameters", ()):
            if each["name"] in parameters(one):
                jsonschema_rs.validate(each["schema"], parameters(one)[each["name"]])
        if "requestBody" in one:
            jsonschema_rs.validate(schema(described, one["requestBody"]), body(described, one))


def schema(described: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    return {**content["content"]["application/json"]["schema"], "components": described["components"]}


def parameters(operation: dict[str, Any]) -> dict[str, Any]:
    known = operation.get("parameters", ())
    return {each["name"]: each["schema"]["examples"][0] for each in known if "examples" in each["schema"]}


def body(described: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any] | None:
    """The fields of a body that have an example."""
    if "requestBody" not in operation:
        return None
    name = schema(described, operation["requestBody"])["$ref"].rpartition("/")[2]
    fields = described["components"]["schemas"][name]["properties"].items()
    return {name: field["examples"][0] for name, field in fields if "examples" in field}


def test_the_examples_are_answered_as_described(tmp_path):
    """As they stand; but for a number that nobody has leased."""
    with Served(f"sqlite:///{tmp_path}/ids.db") as service:
        described = service.get("/openapi.json").json
        paths = described["paths"]
        for path, method, one in [(path, *each) for path, methods in paths.items() for each in methods.items()]:
            answer = service.ask(method.upper(), path.format_map(parameters(one)), json=body(described, one))

            old = (path, method) == ("/v1/workers/{space}", "put")
            assert answer.status in ((400, 409) if old else (200, 201)), (path, answer.body)
            content = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}
            jsonschema_rs.validate(schema(described, content if old else one["responses"]["200"]), answer.json)
