"""Commands: what is accepted, what is refused and in which words, and how times are rounded."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.errors import BadJson, BadRequest, TooLarge, TooMany
from jobqueue.protocols.command import protocol
from jobqueue.schema import fields, params


def add(**fields: Any) -> Any:
    return protocol.parse(json.dumps({"command": "add", "topic": "t", "body": 1, **fields}).encode(), 1000)


def test_seconds_become_milliseconds_rounded_up(subtests: pytest.Subtests) -> None:
    cases: list[tuple[float, int]] = [
        (0, 0),
        (0.001, 1),
        (0.0011, 2),
        (0.1, 100),
        (16.1, 16_100),
        (1.005, 1005),
        (8.2, 8200),
        (315_360_000, 315_360_000_000),
    ]
    for seconds, ms in cases:
        with subtests.test(seconds=seconds, ms=ms):
            assert params.ms(seconds) == ms


@given(st.integers(0, 315_360_000_000))
def test_whole_milliseconds_do_not_change(ms: int) -> None:
    assert params.ms(ms / 1000) == ms


@given(st.floats(0, 1e8))
def test_a_delay_is_never_shortened_by_more_than_a_ten_thousandth_of_a_millisecond(seconds: float) -> None:
    assert params.ms(seconds) >= seconds * 1000 - 1e-4


def test_an_absolute_time_may_be_unix_seconds_or_rfc_3339() -> None:
    soon = datetime.now(UTC).replace(microsecond=123_000) + timedelta(days=1)
    expected = round(soon.timestamp() * 1000)
    assert params.at_ms(add(at=soon.isoformat()).at) == expected
    assert params.at_ms(add(at=soon.timestamp()).at) == expected


def test_ttr_is_accepted_in_upper_case_too() -> None:
    assert add(TTR=5).ttr == 5
    assert add(ttr=5).ttr == 5


def test_every_field_has_words_for_what_is_allowed() -> None:
    for command, kind in params.BY_NAME.items():
        for field in fields.fields_of(kind):
            assert params.must_be(field.name, command) and field.meaning, (command, field.name)


def test_only_optional_fields_have_defaults() -> None:
    for command, named in params.FIELDS.items():
        for field in named.values():
            assert not (field.required and field.default), (command, field.name)


@pytest.mark.parametrize("field", ["ttr", "TTR"])
def test_the_refusal_of_a_touch_for_no_time_does_not_say_that_zero_is_allowed(field: str) -> None:
    with pytest.raises(BadRequest, match=f"^{field} must be a number of seconds from 0.1 "):
        protocol.parse(json.dumps({"command": "touch", "id": "a", field: 0}).encode(), 1000)
    with pytest.raises(BadRequest, match=r"^ttr must be 0 \(at most once\) or"):
        add(ttr=-1)


def test_a_refused_command_keeps_its_id_for_the_answer() -> None:
    with pytest.raises(BadRequest) as refused:
        add(id="mine", delay=-1)
    assert refused.value.job_id == "mine"


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_a_command_or_refused(data: bytes) -> None:
    for parse in (protocol.parse, protocol.parse_many):
        try:
            parse(data, 1000)
        except BadRequest:
            continue


EVERY_FIELD = sorted({field for command in params.FIELDS.values() for field in command})
_JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(), st.lists, max_leaves=5)


@given(st.dictionaries(st.sampled_from([*EVERY_FIELD, "command", "x"]), _JSON), st.sampled_from([*params.BY_NAME, "x"]))
def test_fields_of_any_kind_are_a_command_or_refused_in_words(fields: dict[str, Any], name: str) -> None:
    try:
        protocol.parse(json.dumps({**fields, "command": name}).encode(), 1000)
    except BadRequest as error:
        assert error.message
        assert isinstance(error, BadJson) or error.field is not None


def refusal(**fields: Any) -> BadRequest:
    with pytest.raises(BadRequest) as refused:
        protocol.parse(json.dumps(fields).encode(), 1000)
    return refused.value


@pytest.mark.parametrize("command", ["peek", "pause", "resume", "purge"])
def test_what_is_done_with_a_topic_needs_one(command: str) -> None:
    for topic in ({}, {"topic": None}, {"topic": ""}, {"topic": "t t"}, {"topic": "t*"}, {"topic": "t" * 256}):
        refused = refusal(command=command, **topic)
        assert (refused.code, refused.field) == ("BAD_FIELD", "topic")
    assert protocol.parse(json.dumps({"command": command, "topic": "t" * 255}).encode(), 1000)


def test_a_field_of_a_topics_command_that_is_not_allowed_is_named(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, list[Any]]] = [
        ("peek", "state", ["", "finished", "deleted", "Ready", 2, ["ready"]]),
        ("purge", "state", ["", "finished", "deleted", "all", 2, True]),
        ("peek", "cursor", ["", 5, [1, 0], "x" * 1001]),
        ("purge", "cursor", ["", 5, [1, 0], "x" * 1001]),
        ("topics", "cursor", ["", 5, [1, 0], "x" * 1001]),
        ("peek", "count", [0, 1001, -1, 1.5, "5"]),
        ("pause", "seconds", [0, -1, 0.0009, 315_360_001, "5", True]),
        ("topics", "pattern", ["", "[a]", "a b", "a\\", "a\n", "{jq}", "x" * 256, 5]),
    ]
    for command, field, values in cases:
        with subtests.test(command=command, field=field, values=values):
            topic = {} if command == "topics" else {"topic": "t"}
            for value in values:
                refused = refusal(command=command, **topic, **{field: value})
                assert (refused.code, refused.field) == ("BAD_FIELD", field), value
                assert refused.message.startswith(f"{field} {params.must_be(field, command)}")


def test_a_field_that_a_command_cannot_have_is_named(subtests: pytest.Subtests) -> None:
    job: dict[str, Any] = {"topic": "t", "body": 1}
    cases: list[tuple[str, dict[str, Any], str, list[Any]]] = [
        ("add", {"body": 1}, "topic", [7, "t" * 300, "{jq:0}:meta"]),
        ("add", job, "id", ["a b", "a\n"]),
        ("add", job, "delay", ["30", True, -1, 346_896_000, math.nan]),
        ("add", job, "at", ["2030-01-01T00:00:00", 4_951_238_400, 1e308]),
        ("add", job, "ttr", [0.01]),
        ("add", job, "priority", [10]),
        ("add", job, "backoff", [[1] * 33]),
        ("add", job, "headers", [{"h" * 200: "1"}, {"a": 1}]),
        ("pop", {"topic": "t"}, "count", [1001]),
        ("pop", {"topic": "t"}, "wait", [61]),
        ("touch", {"id": "a"}, "ttr", [0, 0.01, 90_000]),
        ("touch", {"id": "a"}, "TTR", [0.01]),
        ("touch", {"id": "a"}, "lease", ["7"]),
        ("finish", {"id": "a"}, "lease", [2**53]),
        ("release", {"id": "a"}, "lease", [7.5]),
        ("release", {"id": "a"}, "delay", [-1]),
        ("release", {"id": "a"}, "attempt", [0]),
        ("release", {"id": "a"}, "reason", [7]),
        ("bury", {"id": "a"}, "lease", [-1]),
        ("bury", {"id": "a"}, "reason", ["x" * 1001]),
        ("leave", {}, "worker", [None, "", 7, "w" * 129]),
        ("kick", {"topic": "t"}, "count", [0, 1001]),
        ("kick", {}, "topic", ["t t"]),
        ("run", {}, "id", [["a"]]),
        ("update", {"id": "a"}, "at", [4_951_238_400]),
        ("update", {"id": "a"}, "priority", [10]),
        ("update", {"id": "a"}, "ttl", [0]),
        ("update", {"id": "a"}, "durability", ["gold"]),
    ]
    for command, others, field, values in cases:
        for value in values:
            with subtests.test(command=command, field=field, value=value):
                refused = refusal(command=command, **others, **{field: value})
                assert (refused.code, refused.field) == ("BAD_FIELD", field)


def test_a_command_that_lacks_a_field_or_has_two_that_exclude_each_other_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"command": "add", "topic": "t"}, "body"),
        *(({"command": "add", "topic": "t", "if_exists": how}, "body") for how in ("keep", "replace", None)),
        ({"command": "add", "topic": "t", "body": 1, "at": 1, "delay": 1}, "at"),
        ({"command": "add", "topic": "t", "body": 1, "ttr": 1, "TTR": 1}, "ttr"),
        ({"command": "pop"}, "topic"),
        *(({"command": command}, "id") for command in ("touch", "run", "kick")),
        ({"command": "update", "delay": 1}, "id"),
        ({"command": "update", "id": "a", "delay": 1, "at": 1}, "at"),
        ({"command": "touch", "id": "a", "ttr": 1, "TTR": 1}, "ttr"),
        ({"command": "leave"}, "worker"),
        ({"command": "kick", "id": "a", "topic": "t"}, "id"),
        ({"topic": "t", "body": 1}, "command"),
    ]
    for given_fields, field in cases:
        with subtests.test(given=given_fields):
            refused = refusal(**given_fields)
            assert (refused.code, refused.field) == ("BAD_FIELD", field)
            assert field != "body" or refused.message == "body is missing"


def test_a_field_that_a_command_does_not_have_is_unknown(subtests: pytest.Subtests) -> None:
    topic, job = {"topic": "t"}, {"id": "a"}
    cases: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
        ("add", {"topic": "t", "body": 1}, ("dealy", "if-exists")),
        ("topics", {}, ("topic", "count")),
        ("pause", topic, ("delay",)),
        ("resume", topic, ("seconds",)),
        ("purge", topic, ("count",)),
        ("leave", {"worker": "w"}, ("topic",)),
        ("touch", job, ("delay",)),
        ("release", job, ("at",)),
        ("bury", {}, ("topic",)),
        ("run", job, ("delay",)),
        ("update", job, ("topic", "tries")),
    ]
    for command, others, unknown in cases:
        for field in unknown:
            with subtests.test(command=command, field=field):
                refused = refusal(command=command, **others, **{field: "x"})
                assert (refused.code, refused.field) == ("UNKNOWN_FIELD", field)


def test_null_means_the_same_as_no_field_except_for_a_body() -> None:
    for command, kind in params.BY_NAME.items():
        needed = {"command": command, **_needed(kind)}
        without = seen(read_by_itself(json.dumps(needed)))
        for field in fields.fields_of(kind):
            if not field.required and field.name != "body":
                assert seen(read_by_itself(json.dumps({**needed, field.name: None}))) == without, (command, field.name)


def test_the_fields_of_topics_commands_reach_from_end_to_end() -> None:
    for command in (
        {"command": "pause", "topic": "t", "seconds": 0.001},
        {"command": "pause", "topic": "t", "seconds": 315_360_000},
        {"command": "peek", "topic": "t", "count": 1, "state": "dead", "cursor": "x"},
        {"command": "peek", "topic": "t", "count": 1000, "cursor": "x" * 1000},
        {"command": "topics", "pattern": "*"},
        {"command": "topics", "pattern": "A-z.0_:/@#+=?*" + "x" * 241},
        {"command": "purge", "topic": "t", "state": None, "cursor": None},
    ):
        protocol.parse(json.dumps(command).encode(), 1000)


def in_levels(levels: int, inside: str = "1") -> str:
    """Arrays and objects in turn, that many levels, with something in the middle."""
    opening = ["[" if level % 2 else '{"a":' for level in range(levels)]
    return "".join(opening) + inside + "".join("]" if each == "[" else "}" for each in reversed(opening))


def test_a_body_is_refused_where_workers_could_not_read_it_for_its_levels() -> None:
    brackets = json.dumps('["{' * 1000)  # within a string they do not count
    for body in (in_levels(500, brackets), "[" + ",".join(['{"a":[]}'] * 1000) + "]"):
        protocol.parse(f'{{"command":"add","topic":"t","body":{body}}}'.encode(), 10**6)
    for command in ('{"command":"add","topic":"t","body":', '{"command":"update","id":"a","body":'):
        with pytest.raises(BadRequest) as refused:
            protocol.parse(f"{command}{in_levels(501, brackets)}}}".encode(), 10**6)
        assert (refused.value.code, refused.value.field) == ("BAD_FIELD", "body")
        assert refused.value.message == "body is nested too deeply; at most 500 levels are allowed"


_NAMES = st.one_of(
    st.sampled_from(
        ["a", "order-new:7", "", "a b", "a\n", "\na", "a\nb", "é", "a\u2028", "\ud7ff", "a" * 255, "a" * 256]
    ),
    st.text(st.sampled_from("aZ09._-:/@#+=*?\n %"), max_size=5),
    st.binary(min_size=1, max_size=3).map(lambda raw: "".join(f"%{byte:02X}" for byte in raw)),
    st.integers(0, 300).map(lambda length: "%2A" * (length // 3) + "a" * (length % 3)),
)


@given(st.lists(_NAMES, min_size=1, max_size=9))
def test_names_are_the_same_together_as_one_by_one_and_as_the_description_has_them(names: list[str]) -> None:
    described = [bool(re.search(fields._NAME, name)) for name in names]
    assert [bool(fields.is_name(name)) for name in names] == described
    assert fields.are_names(names) == (all(described) and not any("%" in name for name in names))


def test_each_byte_has_one_spelling(subtests: pytest.Subtests) -> None:
    """As it is, or as `%XX`; but a colon may be written both ways in an id."""
    for byte in range(256):
        with subtests.test(byte=byte):
            plain, written = chr(byte) in fields.NAME_CHARACTERS, f"%{byte:02X}"
            assert bool(fields.is_name(written)) is not plain
            assert bool(fields.is_id(written)) is (not plain or byte == ord(":"))
            for name, is_name in ((fields._NAME, fields.is_name), (fields._ID, fields.is_id)):
                assert bool(re.search(name, written)) == bool(is_name(written))
            assert written == written.lower() or not fields.is_id(written.lower())


def test_a_name_is_as_long_as_it_is_written() -> None:
    assert fields.is_name("%2A" * 85) and not fields.is_name("%2A" * 85 + "a")


def test_a_pop_of_one_job_names_only_that(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "pop takes one of topic, topics and id"),
        ({"topic": "t", "id": "a"}, "pop takes one of topic, topics and id"),
        ({"topics": ["t"], "id": "a"}, "pop takes one of topic, topics and id"),
        ({"id": "a", "count": 1}, "pop takes no count and no wait with id"),
        ({"id": "a", "wait": 0}, "pop takes no count and no wait with id"),
    ]
    for named, says in cases:
        with subtests.test(named=named, says=says), pytest.raises(BadRequest, match=says):
            protocol.parse(json.dumps({"command": "pop", **named}).encode(), 1000)


def _needed(kind: Any) -> dict[str, Any]:
    given = {"body": 1, "action": "list"}
    return {each.name: given.get(each.name, "x") for each in fields.fields_of(kind) if each.required}


def test_every_name_of_a_job_or_a_topic_is_checked() -> None:
    _, schemas = msgspec.json.schema_components([*params.BY_NAME.values()])
    for command, kind in params.BY_NAME.items():
        for field, schema in schemas[kind.__name__]["properties"].items():
            if fields._NAME in json.dumps(schema).replace("\\\\", "\\"):
                value = ["a b"] if field == "topics" else "a b"
                refused = refusal(**{"command": command, **_needed(kind), field: value})
                assert refused.field == field
                assert refused.message == f"{field} {params.must_be(field)}; this one has a space"


_TIMES: st.SearchStrategy[dict[str, float]] = st.sampled_from(
    [{}, {}, {"delay": 1}, {"at": 5}, {"at": 5, "delay": 1}, {"at": 1e11}, {"ttr": 1}, {"TTR": 0.05}]
)
_MORE_TIMES: st.SearchStrategy[dict[str, float]] = st.sampled_from(
    [{}, {}, {"TTR": 2}, {"TTR": 2, "ttr": 1}, {"delay": -1}, {"x": 1}]
)
_BODIES = st.sampled_from(
    [
        "1",
        "1",
        '"0e999"',
        "1e9999",
        "1E+0400",
        '"\\u0041"',
        "[" * 501 + "]" * 501,
        f'"{"x" * 600}"',
        '"x"' + " " * 2000,
    ]
)


@st.composite
def _written(draw: st.DrawFn) -> str:
    """A member of an array, often a correct one."""
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["finish", "finish", "delete", "get", "pop", "x"]))
        return json.dumps({"command": kind, "id": draw(_NAMES)})
    named = {"topic": draw(_NAMES), "id": draw(_NAMES)} if draw(st.booleans()) else {"topic": "t"}
    text = json.dumps({"command": "add", **named, **draw(_TIMES), **draw(_MORE_TIMES)})
    return f'{text[:-1]},"body":{draw(_BODIES)}}}'


def read_by_itself(data: str, max_body_bytes: int = 1000) -> Any:
    try:
        return protocol.parse(data.encode(), max_body_bytes)
    except BadRequest as error:
        return error


def seen(read: Any) -> Any:
    """What can be compared of a command or a refusal."""
    if isinstance(read, BadRequest):
        return type(read), read.message, read.field, read.job_id
    return type(read), [
        bytes(each) if isinstance(each, msgspec.Raw) else each for each in msgspec.structs.astuple(read)
    ]


@given(st.lists(_written(), min_size=1, max_size=12), st.booleans())
def test_the_members_of_an_array_are_read_as_each_would_be_by_itself(members: list[str], alike: bool) -> None:
    members = members * (5 if alike else 1)
    together = protocol.parse_many(f"[{','.join(members)}]".encode(), 1000)
    assert [seen(each) for each in together] == [seen(read_by_itself(each)) for each in members]


def test_one_that_is_bad_among_many_alike_is_found_and_harms_no_other(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        '{"command":"add","topic":"t","body":1,"ttr":1,"TTR":1}',
        '{"command":"add","topic":"t","body":1,"at":1,"delay":1}',
        '{"command":"add","topic":"t","body":1,"at":99999999999}',
        '{"command":"add","topic":"t","body":1,"ttr":0.05}',
        '{"command":"add","topic":"t t","id":"a","body":1}',
        '{"command":"add","topic":"t","id":"a\\nb","body":1}',
        '{"command":"add","topic":"t","body":1e9999}',
        f'{{"command":"add","topic":"t","body":"{"x" * 1999}"}}',
        f'{{"command":"add","topic":"t","body":{"[" * 501}{"]" * 501}}}',
        f'{{"command":"add","topic":"t","id":"{"x" * 256}","body":1}}',
    ]
    for bad in cases:
        with subtests.test(bad=bad):
            good = '{"command":"add","topic":"t","id":"g","TTR":5,"body":1}'
            read = protocol.parse_many(f"[{good},{good},{good},{bad},{good},{good}]".encode(), 2000)
            assert [isinstance(each, BadRequest) for each in read] == [False, False, False, True, False, False]
            assert seen(read[3]) == seen(read_by_itself(bad, 2000))
            assert {each.ttr for each in read if isinstance(each, params.Add)} == {5}


@pytest.mark.parametrize("key", ['"command"', '"\\u0063ommand"'])
def test_more_commands_than_are_allowed_are_refused_however_they_are_written(key: str) -> None:
    def read(number: int) -> list[Any]:
        one = f'{{{key}:"stats"}}'
        return protocol.parse_many(f"[{','.join([one] * number)}]".encode(), 1000)

    assert [type(each) for each in read(protocol.MOST)] == [params.Stats] * protocol.MOST
    with pytest.raises(TooMany, match="the request has 1001 commands; 1 to 1000 are allowed"):
        read(protocol.MOST + 1)


def test_bodies_may_say_command_as_often_as_they_like() -> None:
    body = json.dumps([{"command": "x"}] * (protocol.MOST + 1))
    read = protocol.parse_many(f'[{{"command":"add","topic":"t","body":{body}}},{{"command":"x"}}]'.encode(), 10**6)
    assert [type(each).__name__ for each in read] == ["Add", "UnknownCommand"]


def test_of_two_faults_the_first_is_reported_by_itself_and_in_an_array(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ('"id":"a b","topic":"t t","body":1', "id"),
        ('"topic":"t t","id":"a b","body":1', "topic"),
        ('"id":"a b","delay":-1,"topic":"t","body":1', "id"),
        ('"delay":-1,"id":"a b","topic":"t","body":1', "delay"),
        ('"id":"a b","x":1,"topic":"t","body":1', "id"),
        ('"x":1,"id":"a b","topic":"t","body":1', "x"),
        (f'"{"x" * 70}":1,"id":"a b","topic":"t","body":1', "x" * 64),
        ('"topic":"","id":"a","x":1,"body":1e9999', "topic"),
        ('"id":"a b","body":1', "id"),  # and no topic
        ('"id":5,"topic":"t t","body":1', "id"),
        ('"delay":1,"at":1,"id":"a b","topic":"t","body":1', "id"),  # a fault of one field goes before one of two
    ]
    for members, field in cases:
        with subtests.test(members=members, field=field):
            command = f'{{"command":"add",{members}}}'
            refused = read_by_itself(command)
            assert isinstance(refused, BadRequest) and refused.field == field
            for number in (1, 9):
                array = protocol.parse_many(f"[{','.join([command] * number)}]".encode(), 1000)
                assert [seen(each) for each in array] == [seen(refused)] * number


@pytest.mark.parametrize("members", ['"body":1e999', '"body":1,"delay":1,"at":1', '"body":1e999,"x":2'])
def test_a_refusal_has_the_id_that_the_command_named(members: str) -> None:
    command = f'{{"command":"add","topic":"t","id":"mine",{members}}}'
    refused = read_by_itself(command)
    assert isinstance(refused, BadRequest) and refused.job_id == "mine"
    for number in (1, 9):
        array = protocol.parse_many(f"[{','.join([command] * number)}]".encode(), 1000)
        assert [seen(each) for each in array] == [seen(refused)] * number
        assert [getattr(each, "job_id", None) for each in array] == ["mine"] * number


def test_of_two_equal_names_the_last_counts() -> None:
    """As in most readers of JSON."""
    assert protocol.parse(b'{"command":"finish","id":"a b","id":"ok"}', 1000) == params.Finish(id="ok")


def test_a_bound_below_the_size_that_is_checked_together_holds_for_many_too() -> None:
    command = f'{{"command":"add","topic":"t","body":"{"x" * 60}"}}'
    array = protocol.parse_many(f"[{','.join([command] * 9)}]".encode(), 61)
    assert [type(each) for each in array] == [TooLarge] * 9
