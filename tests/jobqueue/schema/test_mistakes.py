"""A refusal says what is probably wrong with the value, not only what is allowed."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
import pytest

from jobqueue.errors import BadJson, BadRequest, TooMany, UnknownCommand
from jobqueue.protocols.command import protocol
from jobqueue.schema import params
from jobqueue.schema.mistakes import (
    _AGAIN_AND_AGAIN,
    _COMMANDS,
    _ONE_AFTER_ANOTHER,
    _OURS,
    _WHICH_ESCAPES,
    Misfit,
    misfit,
)


def refusal(data: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as refused:
        protocol.parse(data, 1000)
    return refused.value


def refusal_of(fields: dict[str, Any]) -> BadRequest:
    return refusal(json.dumps(fields).encode())


def add(field: str, value: Any) -> dict[str, Any]:
    return {"command": "add", "topic": "t", "body": 1, field: value}


def schedule(field: str, value: Any) -> dict[str, Any]:
    return {"command": "schedule", "name": "n", "topic": "t", "body": 1, "every": 60, field: value}


def pop(field: str, value: Any) -> dict[str, Any]:
    return {"command": "pop", "topic": "t", field: value}


def test_the_refusal_of_a_value_ends_with_the_likely_mistake(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        (add("delay", "30"), "delay", "(10 years), not a string"),
        (add("delay", True), "delay", ", not a boolean"),
        (add("delay", [30]), "delay", ", not an array"),
        (add("delay", 1_795_370_000), "delay", "; this looks like a time, which goes into `at`"),
        (add("delay", -1), "delay", "from 0 to 315360000 (10 years)"),
        (add("ttr", 1_800_000), "ttr", "; this looks like milliseconds"),
        (add("ttr", 0.05), "ttr", "from 0.1 to 86400 (24 h)"),
        (pop("wait", 5000), "wait", "; this looks like milliseconds"),
        (pop("wait", 90), "wait", "from 0 to 60"),
        (add("at", 1_795_370_000_000), "at", "; this looks like milliseconds"),
        (add("at", "1795370000"), "at", "; unix seconds are a number, not a string"),
        (add("at", "2026-11-23T09:00:00"), "at", "; this one has no offset"),
        (add("at", "9 o'clock"), "at", "such as 2026-11-23T09:00:00+01:00, at most 10 years ahead"),
        (add("at", "2099-11-23T09:00:00Z"), "at", "at most 10 years ahead"),
        (add("topic", "order close"), "topic", "; this one has a space"),
        (add("topic", "🛒"), "topic", "; this one has '🛒' (U+1F6D2)"),
        (add("topic", "a%b"), "topic", f"; this one has '%b', but {_WHICH_ESCAPES}"),
        (add("topic", "a%2Ab%3Ac"), "topic", f"; this one has '%3A', but {_WHICH_ESCAPES}"),
        (add("id", "a%3Ab%2a"), "id", f"; this one has '%2a', but {_WHICH_ESCAPES}"),
        (add("id", "a%41%"), "id", f"; this one has '%41', but {_WHICH_ESCAPES}"),
        ({"command": "topics", "pattern": "%4*"}, "pattern", f"; this one has '%4*', but {_WHICH_ESCAPES}"),
        (add("id", "a\n"), "id", "; this one has '\\n' (U+000A)"),
        (add("id", "x" * 300), "id", "; this one has 300 characters"),
        (add("id", ""), "id", "; this one is empty"),
        (add("id", 17), "id", ", not a number"),
        (pop("topics", ["a", "b c"]), "topics", "; this one has a space"),
        (pop("topics", "a"), "topics", ", not a string"),
        (pop("worker", "x" * 200), "worker", "; this one has 200 characters"),
        (pop("count", "5"), "count", ", not a string"),
        (add("backoff", ["1", "5"]), "backoff", "; these are numbers, not strings"),
        (add("headers", {"a": 1}), "headers", "; the value of 'a' is not a string"),
        (add("if_exists", "Replace"), "if_exists", "; did you mean 'replace'?"),
        (add("if_exists", "never"), "if_exists", ", not 'never'"),
        ({"command": "topics", "pattern": "[a]"}, "pattern", "; this one has '['"),
        (schedule("name", "nightly@1"), "name", "; this one has '@'"),
        (schedule("name", "my job"), "name", "; this one has a space"),
        (schedule("name", "x" * 201), "name", "; this one has 201 characters"),
        (schedule("every", "10m"), "every", "(a year), not a string"),
        (schedule("every", 0.5), "every", "from 1 to 31536000 (a year)"),
        (schedule("every", 60_000_000), "every", "; this looks like milliseconds"),
        (schedule("start", 1_795_370_000_000), "start", "; this looks like milliseconds"),
        (schedule("start", "2026-11-23T09:00:00"), "start", "; this one has no offset"),
        (schedule("start", "0001-01-01T00:00:00Z"), "start", "from 1970 on and at most 10 years ahead"),
        (schedule("start", "2099-01-01T00:00:00Z"), "start", "from 1970 on and at most 10 years ahead"),
        (schedule("start", -1), "start", "from 1970 on and at most 10 years ahead"),
        (schedule("cron", 5), "cron", ", not a number"),
        (schedule("cron", "x" * 300), "cron", "; this one has 300 characters"),
        (schedule("catch_up", "Last"), "catch_up", "; did you mean 'last'?"),
        (schedule("overlap", "never"), "overlap", ", not 'never'"),
        (schedule("paused", "yes"), "paused", ", not a string"),
        ({"command": "unschedule", "name": ""}, "name", "; this one is empty"),
        ({"command": "schedules", "pattern": "[a]"}, "pattern", "; this one has '['"),
        ({"command": "peek", "topic": "t", "cursor": ""}, "cursor", "an earlier answer to this command gave"),
        ({"command": "finish", "id": "a", "lease": "12"}, "lease", ", not a string"),
        ({"command": "release", "id": "a", "attempt": "no"}, "attempt", ", not a string"),
    ]
    for command, field, end in cases:
        with subtests.test(command=command, field=field, end=end):
            refused = refusal_of(command)
            assert (refused.code, refused.field) == ("BAD_FIELD", field)
            assert refused.message.startswith(f"{field} {params.must_be(field, command['command'])}")
            assert refused.message.endswith(end)


@pytest.mark.parametrize("wrong", ["Command", "comand", "COMMAND", "cmd"])
def test_a_misspelt_command_field_is_recognised(wrong: str) -> None:
    refused = refusal_of({wrong: "add", "topic": "t", "body": 1})
    assert (refused.code, refused.field) == ("BAD_FIELD", "command")
    assert refused.message == f"command is missing; unknown field: {wrong!r}; did you mean 'command'?"


def test_a_request_without_anything_like_a_command_lacks_one() -> None:
    for request in ({"topic": "t", "id": "a"}, {"command": None}):
        assert refusal_of(request).message == "command is missing"


def test_a_field_of_another_queue_is_refused_with_ours(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        *((each, "; a job that recurs is added by the command 'schedule'") for each in ("cron", "every", "repeat")),
        ("attempts", "; did you mean 'tries'?"),
        ("maxReceiveCount", "; did you mean 'tries'?"),
        ("jobId", "; did you mean 'id'?"),
        ("task_id", "; did you mean 'id'?"),
        ("timeout", "; did you mean 'ttr'?"),
        ("VisibilityTimeout", "; did you mean 'ttr'?"),
        ("ackTimeoutMillis", "; did you mean 'ttr', in seconds?"),
        ("pri", "; did you mean 'priority'?"),
        ("eta", "; did you mean 'at'?"),
        ("countdown", "; did you mean 'delay'?"),
        ("DelaySeconds", "; did you mean 'delay'?"),
        ("x-delay", "; did you mean 'delay', in seconds?"),
        ("expires", "; did you mean 'ttl'?"),
        ("queue", "; did you mean 'topic'?"),
        ("tube", "; did you mean 'topic'?"),
        ("data", "; did you mean 'body'?"),
        ("removeOnComplete", "; did you mean 'retention'?"),
        ("children", "; no job waits for another: the handler of the first adds the next"),
        ("dealy", "; did you mean 'delay'?"),
        ("lifo", "unknown field of add: 'lifo'"),
    ]
    for field, end in cases:
        with subtests.test(field=field, end=end):
            refused = refusal_of(add(field, 1))
            assert (refused.code, refused.field) == ("UNKNOWN_FIELD", field)
            assert refused.message.startswith(f"unknown field of add: {field!r}") and refused.message.endswith(end)


def test_a_word_that_means_several_things_is_taken_as_the_command_can_mean_it() -> None:
    assert refusal_of(pop("timeout", 5)).message.endswith("; did you mean 'wait'?")
    assert refusal_of({"command": "touch", "id": "a", "receiptHandle": 1}).message.endswith("; did you mean 'lease'?")
    assert "schedule" not in refusal_of(pop("cron", 5)).message  # no pop recurs


def test_no_word_of_another_queue_is_one_of_ours_and_each_means_something_of_ours() -> None:
    fields = {kind: {*struct.__struct_encode_fields__} for kind, struct in params.BY_NAME.items()}
    assert {ours for each in _OURS.values() for ours in each} <= {name for each in fields.values() for name in each}
    assert {*_COMMANDS.values()} <= params.BY_NAME.keys() and not _COMMANDS.keys() & params.BY_NAME.keys()
    assert not {*_OURS, *_AGAIN_AND_AGAIN, *_ONE_AFTER_ANOTHER} & fields["add"]


def test_a_command_of_another_queue_is_refused_with_ours(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        *(("enqueue", "add"), ("push", "add"), ("put", "add"), ("ack", "finish"), ("nack", "release")),
        *(("reserve", "pop"), ("ReceiveMessage", "pop"), ("remove", "delete"), ("cancel", "delete")),
        *(("promote", "run"), ("obliterate", "purge")),
    ]
    for name, ours in cases:
        with subtests.test(name=name):
            assert refusal_of({"command": name}).message == f"unknown command: {name!r}; did you mean {ours!r}?"


def test_a_list_is_of_topics_or_of_jobs() -> None:
    refused = refusal_of({"command": "list"})
    assert refused.message == "unknown command: 'list'; did you mean 'topics', or 'peek' for the jobs of one?"


@pytest.mark.parametrize("name", ["x", "transmogrify", ""])
def test_the_refusal_of_a_command_that_is_like_none_lists_the_commands(name: str) -> None:
    refused = refusal_of({"command": name})
    assert isinstance(refused, UnknownCommand)
    assert refused.message == f"unknown command: {name!r}; the commands are {', '.join(params.BY_NAME)}"


@pytest.mark.parametrize(("name", "meant"), [("ADD", "add"), ("finsh", "finish"), ("peak", "peek"), ("popp", "pop")])
def test_a_misspelt_command_is_recognised(name: str, meant: str) -> None:
    assert refusal_of({"command": name}).message == f"unknown command: {name!r}; did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({}, "every", "schedule takes either every or cron"),
        ({"every": 60, "cron": "* * * * *"}, "every", "schedule takes either every or cron"),
        ({"every": 60, "zone": "Europe/Berlin"}, "zone", "zone goes with cron"),
        ({"cron": "* * * * *", "start": 0}, "start", "start goes with every"),
        ({"every": 60, "ttr": 5, "TTR": 5}, "ttr", "ttr and TTR are the same field; give only one"),
    ],
    ids=str,
)
def test_a_schedule_is_by_an_interval_or_a_calendar_with_what_goes_with_it(
    given: dict[str, Any], field: str, words: str
) -> None:
    refused = refusal_of({"command": "schedule", "name": "n", "topic": "t", "body": 1, **given})
    assert (refused.code, refused.field, refused.message) == ("BAD_FIELD", field, words)


def test_a_schedule_has_no_field_of_an_add_that_occurrences_decide_themselves() -> None:
    for field in ("id", "delay", "at", "if_exists"):
        refused = refusal_of(schedule(field, 1))
        assert (refused.code, refused.field) == ("UNKNOWN_FIELD", field)


@pytest.mark.parametrize("nothing", [{}, {"delay": None, "ttl": None}, {"durability": "local"}])
def test_an_update_of_nothing_is_refused(nothing: dict[str, Any]) -> None:
    refused = refusal_of({"command": "update", "id": "a", **nothing})
    assert refused.code == "BAD_FIELD"
    assert refused.message == "update changes nothing; give at least one of delay, at, priority, ttl or body"


def test_an_update_to_a_null_body_or_to_priority_zero_is_a_change() -> None:
    for change in ({"body": None}, {"priority": 0}, {"delay": 0}):
        protocol.parse(json.dumps({"command": "update", "id": "a", **change}).encode(), 1000)


def test_an_empty_array_asks_for_a_command() -> None:
    with pytest.raises(TooMany, match=r"^the array is empty; send at least one command$"):
        protocol.parse_many(b"[]", 1000)


@pytest.mark.parametrize(
    ("text", "lone"),
    [
        (r'"\ud800"', r"\ud800"),
        (r'"\ud83d\ude00 \udC00"', r"\udC00"),
        (r'"\\\ud83dx"', r"\ud83d"),
        (r'"\ud83d\u0041"', r"\ud83d"),
    ],
)
def test_a_lone_surrogate_is_named(text: str, lone: str) -> None:
    for field in ("body", "id"):
        refused = refusal(f'{{"command":"add","topic":"t","{field}":{text}}}'.encode())
        assert isinstance(refused, BadJson)
        assert refused.message == f"the request is not JSON: {lone} is a lone surrogate, which is not a character"


def test_a_request_that_is_cut_off_ends_too_early() -> None:
    assert refusal(b'{"command":"stats"').message == "the request is not JSON: it ends too early"


def test_two_commands_in_one_object_are_refused() -> None:
    refused = refusal(b'{"command":"stats","command":"get","id":"a"}')
    assert (refused.code, refused.field, refused.message) == ("BAD_FIELD", "command", "command is given twice")


def test_a_long_request_is_not_searched_for_a_lone_surrogate() -> None:
    """It would hold up the process."""
    assert "surrogate" not in refusal(rb'{"command":"add","body":"%b\ud800"}' % (b"x" * 70_000)).message


def test_what_looks_like_a_lone_surrogate_is_not_blamed_for_another_mistake() -> None:
    assert "surrogate" not in refusal(rb'{"command":"add","body":"\\ud800 \ud83d\ude00"').message


def test_a_byte_order_mark_is_named() -> None:
    refused = refusal(b'\xef\xbb\xbf{"command":"stats"}')
    assert isinstance(refused, BadJson) and "byte order mark (BOM)" in refused.message


class Part(msgspec.Struct, forbid_unknown_fields=True):
    number: Annotated[int, msgspec.Meta(ge=1)]
    by_name: dict[Annotated[str, msgspec.Meta(max_length=2)], int] = {}


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    parts: list[Part]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, Misfit("Expected `object`, got `int`", "", False, None, None)),
        ({}, Misfit("Object missing required field `parts`", "", False, None, "parts")),
        ({"a`\nb": 1, "parts": []}, Misfit("Object contains unknown field `a`\nb`", "", False, "a`\nb", None)),
        ({"parts": [{"number": 0}]}, Misfit("Expected `int` >= 1", ".parts[0].number", False, None, None)),
        (
            {"parts": [{"number": 1, "odd": 1}]},
            Misfit("Object contains unknown field `odd`", ".parts[0]", False, "odd", None),
        ),
        (
            {"parts": [{"number": 1, "by_name": {"abc": 1}}]},
            Misfit("Expected `str` of length <= 2", ".parts[0].by_name", True, None, None),
        ),
    ],
)
def test_a_message_of_msgspec_is_taken_apart(value: object, expected: Misfit) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(value, Whole)
    assert misfit(raised.value) == expected
