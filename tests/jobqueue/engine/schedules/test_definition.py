"""What a schedule's definition keeps of a command, and how a calendar or a time zone that there is not is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobqueue.engine.schedules import times
from jobqueue.engine.schedules.definition import decoded, defined, encoded
from jobqueue.errors import BadField
from jobqueue.protocols.command import protocol
from jobqueue.schema import params

NEW_YEAR_2026_S = 1_767_225_600


def command(**fields: Any) -> params.Schedule:
    """As the service reads it."""
    given = {"command": "schedule", "name": "n", "topic": "t", "body": {"a": 1}, **fields}
    read: Any = protocol.parse(json.dumps(given).encode(), 1000)
    return read  # type: ignore[no-any-return]


def kept(**fields: Any) -> bytes:
    return encoded(defined(command(**fields)))


def refusal(**fields: Any) -> BadField:
    with pytest.raises(BadField) as refused:
        defined(command(**fields))
    return refused.value


def test_what_is_kept_can_be_read_again() -> None:
    options = {"ttr": 5, "priority": 1, "tries": 0, "backoff": [], "ttl": 9, "retention": 0, "tags": ["x"]}
    whole = {"every": 1.5, "start": 1e9, "jitter": 2, "catch_up": "all", "overlap": "skip", "headers": {"a": "b"}}
    definition = decoded(kept(**whole, **options))
    for name, value in (whole | options).items():
        assert getattr(definition, name) == value
    assert bytes(definition.body) == b'{"a": 1}'


def test_the_same_definition_is_kept_as_the_same_bytes_in_whichever_words() -> None:
    spelled_out = {"zone": "UTC", "jitter": 0, "catch_up": "last", "overlap": "allow", "paused": False, "ttl": None}
    assert kept(cron="30 2 * * MON-FRI", **spelled_out) == kept(cron=" 30  2 * * mon-fri\n")
    assert kept(every=60, start="2026-01-01T01:00:00+01:00") == kept(every=60.0, start=NEW_YEAR_2026_S)
    assert kept(every=60, TTR=5) == kept(every=60, ttr=5)


def test_another_definition_is_kept_as_other_bytes(subtests: pytest.Subtests) -> None:
    cases: list[dict[str, Any]] = [
        *({"every": 61}, {"every": 60, "start": 5}, {"cron": "* * * * *"}, {"every": 60, "paused": True}),
        *({"every": 60, "tries": 16}, {"every": 60, "body": {"a": 2}}, {"every": 60, "topic": "u"}),
    ]
    for other in cases:
        with subtests.test(other=other):
            assert kept(**other) != kept(every=60)


def test_an_occurrence_has_the_options_and_leaves_the_others_to_the_policies() -> None:
    add = defined(command(every=60, tries=3, tags=["x"])).occurrence("n@1")
    assert (add.id, add.topic, bytes(add.body), add.if_exists) == ("n@1", "t", b'{"a": 1}', "reject")
    assert (add.tries, add.tags, add.ttr, add.priority, add.ttl) == (3, ["x"], None, None, None)


def test_the_refusal_of_a_calendar_names_what_is_wrong(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("@daily", "; this one has 1 field"),
        ("* * * *", "; this one has 4 fields"),
        ("0 * * * * * 2026", "; this one has 7 fields"),
        ("", "; this one has 0 fields"),
        ("60 * * * *", "; its minute is not possible"),
        ("0 24 * * *", "; its hour is not possible"),
        ("60 * * * * *", "; its second is not possible"),
        ("0 0 30 2 *", "; its day-of-month is not possible"),
        ("0 0 31 4,6,9,11 *", "; its day-of-month is not possible"),
        ("0 0 * JULY *", "; its month is not possible"),
        ("0 0 * * MON#6", "; its day-of-week is not possible"),
        ("5-1 * * * *", "; its minute is not possible"),
        ("*/0 * * * *", "; its minute is not possible"),
    ]
    for cron, end in cases:
        with subtests.test(cron=cron, end=end):
            refused = refusal(cron=cron)
            assert (refused.code, refused.field) == ("BAD_FIELD", "cron")
            assert refused.message.startswith(
                "cron must be the five fields of a cron expression, or six with seconds first"
            )
            assert refused.message.endswith(end)


def test_a_time_zone_that_there_is_not_is_refused_with_the_one_that_was_meant(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        *(("europe/berlin", "Europe/Berlin"), ("Berlin", "Europe/Berlin"), ("New York", "America/New_York")),
        *(("Europe/Berlni", "Europe/Berlin"), ("Asia/Calcuta", "Asia/Calcutta"), ("utc", "UTC"), (" CET", "CET")),
    ]
    for zone, meant in cases:
        with subtests.test(zone=zone, meant=meant):
            refused = refusal(cron="* * * * *", zone=zone)
            assert (refused.code, refused.field) == ("BAD_FIELD", "zone")
            assert refused.message.endswith(f"such as Europe/Berlin; did you mean {meant!r}?")


def test_a_time_zone_that_machines_differ_in_or_nobody_knows_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["CEST", "GMT+2", "localtime", "posix/Europe/Berlin", "right/UTC", "Europe", "", "../UTC"]
    for zone in cases:
        with subtests.test(zone=zone):
            assert refusal(cron="* * * * *", zone=zone).message.endswith(f"; there is no {zone!r}")


def test_all_zones_of_the_database_are_there() -> None:
    assert {"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "CET", "Etc/GMT+2"} <= times.names()
    assert len(times.names()) > 500
    for zone in times.names():
        defined(command(cron="0 0 * * *", zone=zone))
