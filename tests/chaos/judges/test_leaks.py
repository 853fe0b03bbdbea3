"""The checker finds what a service still holds at the end."""

from __future__ import annotations

from tests.chaos.judges.checker import check
from tests.chaos.judges.leaks import REDIS
from tests.chaos.judges.made_up_history import Fable

SERVICE, OTHER = "http://127.0.0.1:8000", "http://127.0.0.1:8001"
_INSTANCE = {"clients": 7, "descriptors": 29, "threads": 5, "kB": 61_000, "waiting pops": 3}
_REDIS = {"connections": 2, "keys j": 200, "keys b": 8, "keys r": 1, "endless records": 120, "dead letters": 1}


def found(
    instance: dict[str, int] | None = None, redis: dict[str, int] | None = None, other: dict[str, int] | None = None
) -> list[str]:
    """The findings when these counts differ at the end from what they should be. `other`: what another instance held
    before, and holds no longer."""
    fable = Fable()
    rest = _INSTANCE | {"clients": 0, "waiting pops": 0} | (instance or {})
    left = {"connections": 2, "keys j": 900, "keys meta": 1, "endless records": 9, "dead letters": 9} | (redis or {})
    for moment, own, theirs in (("before", _INSTANCE, _REDIS), ("after", rest, left)):
        for owner, counts in ((SERVICE, own), (REDIS, theirs), (OTHER, other or {} if own is _INSTANCE else {})):
            op = fable.write("invoke", "resources", process=moment, url=owner)
            fable.write("ok", "resources", op, process=moment, url=owner, counts=counts)
    findings = check(fable.look()).findings
    assert {finding.invariant for finding in findings} <= {"leak"} and all(finding.lines for finding in findings)
    return [finding.says for finding in findings]


def test_a_service_that_holds_what_it_held_before_leaks_nothing() -> None:
    assert found() == []
    assert found({"threads": 7, "kB": 160_000, "descriptors": 28}, {"keys j": 90_000, "keys c": 300}) == []


def test_each_leak_of_an_instance_is_found() -> None:
    for name, number in {"clients": 1, "waiting pops": 1, "descriptors": 30, "threads": 8, "kB": 161_001}.items():
        (says,) = found({name: number})
        assert says.startswith(f"{SERVICE}: {number} {name}, ")


def test_an_instance_may_hold_what_another_one_held_before() -> None:
    assert found({"descriptors": 31}, other={"descriptors": 31}) == []
    assert found({"descriptors": 32}, other={"descriptors": 31})
    assert found(redis={"connections": 3}, other={"connections": 3})


def test_each_leak_in_redis_is_found() -> None:
    for name, number in {"connections": 3, "keys r": 1, "keys b": 1, "keys h": 1, "keys x": 1, "keys p": 1}.items():
        (says,) = found(redis={name: number})
        assert says.startswith(f"{REDIS}: {number} {name}, ")


def test_a_record_that_never_ends_and_is_no_dead_letter_is_found() -> None:
    (says,) = found(redis={"endless records": 10})
    assert "10 records that do not end by themselves, and 9 dead letters" in says
