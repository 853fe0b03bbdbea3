"""The OpenAPI description of the service, for `GET /openapi.json`. It has the same sources as the reference."""

from __future__ import annotations

import importlib.metadata
from collections import defaultdict
from typing import Any

import msgspec

from jobqueue.errors import BAD_HTTP_STATUS, STATUS, BadHttp
from jobqueue.protocols.command import protocol
from jobqueue.reference import Entry, codes, end_patterns, entries
from jobqueue.schema import answers
from jobqueue.schema.checks import KEEPS_BODY

Schema = dict[str, Any]

_REF = "#/components/schemas/{name}"
_ABOUT = (
    "A delay-queue service: a job is added with a delay, becomes ready when it is due, and is delivered to workers "
    "until one of them finishes it."
)


def description() -> Schema:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "jobqueue", "version": importlib.metadata.version("jobqueue"), "description": _ABOUT},
        "servers": [{"url": "/"}],
        "paths": {
            protocol.CommandProtocol.path: {"post": _command()},
            "/": {"get": _read("list", "The paths of this service", _json({"type": "object"}))},
            "/healthz": {
                "get": _read(
                    "alive", "Whether the process is alive", _json(_object(status={"const": "up"})), of_all=True
                )
            },
            "/readyz": {"get": _ready()},
            "/metrics": {
                "get": _read("metrics", "Metrics for Prometheus", {"text/plain": {"schema": {"type": "string"}}})
            },
            "/openapi.json": {"get": _read("describe", "This description", _json({"type": "object"}))},
        },
        "components": {"schemas": _schemas(), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],  # the second is for a service without tokens
    }


def _command() -> Schema:
    return {
        "operationId": "command",
        "summary": "Carry out one command, or up to 1,000",
        "requestBody": {"required": True, "content": _json(_requests())},
        "responses": {"200": _carried_out()} | {str(status): _refused(status) for status in _refusals()},
    }


def _requests() -> Schema:
    one = {
        "oneOf": [_ref(entry.kind) for entry in entries()],
        "discriminator": {
            "propertyName": "command",
            "mapping": {entry.name: _ref(entry.kind)["$ref"] for entry in entries()},
        },
    }
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1, "maxItems": protocol.MOST}]}


def _carried_out() -> Schema:
    """One answer, or an array of answers, which may include refusals."""
    shapes = [_ref(shape) for shape in _answers()]
    many = {"type": "array", "items": {"anyOf": [*shapes, _ref(answers.Refusal)]}, "minItems": 1}
    return {"description": "Carried out", "content": _json({"anyOf": [*shapes, many]})}


def _answers() -> list[type[msgspec.Struct]]:
    """The structs of answers, each once."""
    return list(dict.fromkeys(shape for entry in entries() for shape in entry.answers))


def _refusals() -> dict[int, list[str]]:
    """The codes by status."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for code, status in STATUS.items():
        found[status].append(code)
    for status in BAD_HTTP_STATUS.values():
        found[status].append(BadHttp.code)
    return dict(sorted(found.items()))


def _refused(status: int) -> Schema:
    meanings = codes()
    words = "\n".join(f"- {code}: {meanings[code]}" for code in _refusals()[status])
    refused: Schema = {"description": words, "content": _json(_ref(answers.Refusal))}
    if status in (429, 503):
        refused["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
    return refused


def _read(name: str, summary: str, content: Schema, *, of_all: bool = False) -> Schema:
    """A page. `of_all`: True if no service requires a token for it."""
    refused = {} if of_all else {str(status): _refused(status) for status in (401, 403)}
    responses = {"200": {"description": "OK", "content": content}, **refused}
    return {"operationId": name, "summary": summary, "responses": responses, **({"security": [{}]} if of_all else {})}


def _ready() -> Schema:
    checks = {"type": "object", "additionalProperties": {"type": "boolean"}}
    content = _json(_object(ready={"type": "boolean"}, checks=checks) | {"required": ["ready"]})
    summary = "Whether this instance takes requests; for those who may look also the state of what it depends on"
    read = _read("ready", summary, content, of_all=True)
    read["responses"]["503"] = {"description": "not ready", "content": content}
    return read


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _ref(kind: type[msgspec.Struct]) -> Schema:
    return {"$ref": _REF.format(name=kind.__name__)}


def _schemas() -> Schema:
    """The schemas of commands and answers. The schema of a command also has the command's text and its answers."""
    _, schemas = msgspec.json.schema_components(
        [*(entry.kind for entry in entries()), *_answers(), answers.Refusal], ref_template=_REF
    )
    end_patterns(schemas)
    for entry in entries():
        _complete(schemas[entry.kind.__name__], entry)
    keeps_body = {"properties": {"if_exists": {"enum": [*KEEPS_BODY]}}, "required": ["if_exists"]}
    schemas["Add"]["anyOf"] = [{"required": ["body"]}, keeps_body]
    return schemas


def _complete(schema: Schema, entry: Entry) -> None:
    schema["description"] = entry.does
    schema["x-answers"] = [_ref(shape) for shape in entry.answers]  # a single path for all commands cannot express this
