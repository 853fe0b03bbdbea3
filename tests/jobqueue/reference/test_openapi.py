"""The OpenAPI description: valid, and in agreement with the reader of commands."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from jobqueue.errors import BAD_HTTP_STATUS, STATUS, BadRequest
from jobqueue.protocols.command import protocol
from jobqueue.reference import openapi
from jobqueue.schema import params
from jobqueue.schema.answers import ANSWERS

DOCUMENT = json.loads(json.dumps(openapi.description()))


def requests_schema() -> Any:
    body = DOCUMENT["paths"]["/command"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return jsonschema_rs.Draft202012Validator({**body, "components": DOCUMENT["components"]})


def test_the_description_is_valid() -> None:
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []


def test_every_command_answer_and_code_is_in_it() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name, kind in params.BY_NAME.items():
        schema = schemas[kind.__name__]
        assert schema["properties"]["command"]["enum"] == [name]
        assert schema["properties"].keys() == {"command", *kind.__struct_encode_fields__}
        assert [each["$ref"].rpartition("/")[2] for each in schema["x-answers"]] == [
            shape.__name__ for shape in ANSWERS[name]
        ]
    assert schemas["Refusal"]["properties"]["code"]["enum"] == [*STATUS]
    assert DOCUMENT["paths"]["/command"]["post"]["responses"].keys() == {
        *map(str, (200, *STATUS.values(), *BAD_HTTP_STATUS.values()))
    }


def add(**fields: Any) -> dict[str, Any]:
    return {"command": "add", "topic": "t", "body": 1, **fields}


@pytest.mark.parametrize(
    ("request_", "good"),
    [
        (add(), True),
        (add(id=None, delay=0, at=None, TTR=60, backoff=[15, 15, 30], headers={"a": "b"}, tags=[]), True),
        (add(at="2030-01-01T00:00:00Z"), True),
        ([add(), {"command": "stats"}], True),
        (add(dealy=3), False),
        (add(delay=-1), False),
        (add(delay="3"), False),
        (add(ttr=0.05), False),
        (add(id="a b"), False),
        (add(id="a\n"), False),
        (add(tries=1.5), False),
        (add(if_exists="maybe"), False),
        ({"command": "add", "topic": "t"}, False),
        ({"command": "add", "topic": "t", "if_exists": "replace"}, False),
        ({"command": "add", "topic": "t", "if_exists": "later"}, True),
        (add(spread=86_400), True),
        (add(spread=86_401), False),
        ({"command": "adds", "topic": "t"}, False),
        ({"command": "pop", "topic": "t", "count": 0}, False),
        ({"command": "touch", "id": "a", "ttr": 0}, False),
        ([], False),
        ([{"command": "stats"}] * 1001, False),
        (7, False),
    ],
)
def test_it_accepts_what_the_service_accepts(request_: Any, good: bool) -> None:
    assert requests_schema().is_valid(request_) is good
    assert is_read(request_) is good


def is_read(request: Any) -> bool:
    data = json.dumps(request).encode()
    try:
        read = protocol.parse_many(data, 1000) if isinstance(request, list) else [protocol.parse(data, 1000)]
    except BadRequest:
        return False
    return not any(isinstance(each, BadRequest) for each in read)
