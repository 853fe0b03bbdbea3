"""What the Python client retries, and when: the cases that a scenario could show only by waiting."""

from __future__ import annotations

import time
from typing import Any

from jobqueue_client import (
    Forbidden,
    Internal,
    NoRoom,
    NotFound,
    TooFast,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from jobqueue_client.options import Addresses, Route
from jobqueue_client.retry import Retries, is_final, is_safe, may_repeat, pause_s

SAFE: list[dict[str, Any]] = [
    {"command": "add", "topic": "t", "id": "1"},
    {"command": "add", "topic": "t", "id": "1", "if_exists": "keep", "retention": 1},
    *({"command": "operation", "do": do} for do in ("plan", "get", "list")),
    *({"command": name, "id": "1", "lease": 1} for name in ("touch", "release", "bury")),
]
UNSAFE: list[dict[str, Any]] = [
    {"command": "add", "topic": "t"},
    {"command": "add", "topic": "t", "id": None},
    *({"command": "add", "topic": "t", "id": "1", "if_exists": how} for how in ("reject", "replace", "renew")),
    {"command": "add", "topic": "t", "id": "1", "retention": 0.0},
    *({"command": "operation", "do": do} for do in ("start", "pause", "resume", "cancel")),
    *(
        {"command": name, "id": "1", **lease}
        for name in ("touch", "release", "bury")
        for lease in ({}, {"lease": None})
    ),
    {"command": "a command of tomorrow"},
]
"""By their fields; tests/test_new_command.py compares the commands that are always safe with the service's."""


def retries_of(*urls: str, for_s: float) -> Retries:
    """The retries of a call whose first request was sent."""
    retries = Retries(for_s, Route(Addresses(urls)))
    retries.request(b"", 0)
    return retries


def test_what_is_safe_to_repeat() -> None:
    assert [command for command in SAFE if not is_safe(command)] == []
    assert [command for command in UNSAFE if is_safe(command)] == []


def test_an_error_is_repeated_or_not() -> None:
    for error, when_safe, when_unsafe in (
        (NoRoom({}, 503), True, True),
        (TooFast({}, 429), True, True),
        (Unauthorized({}, 401), False, False),
        (Forbidden({}, 403), False, False),
        (Unavailable({}, 503), True, False),
        (Internal({}, 500), False, False),
        (NotFound({}, 404), False, False),
        (Unreachable("", maybe_done=False), True, True),
        (Unreachable("", maybe_done=True), True, False),
        (Unreachable("", maybe_done=True, for_now=False), False, False),
    ):
        assert (may_repeat(error, safe=True), may_repeat(error, safe=False)) == (when_safe, when_unsafe), error


def test_only_a_permanent_refusal_is_final() -> None:
    assert is_final(NotFound({}, 404))
    assert not is_final(Internal({}, 500)) and not is_final(Unreachable("", maybe_done=True, for_now=False))
    assert is_final(Forbidden({}, 403)) and not is_final(Unauthorized({}, 401))
    assert not is_final(Internal({}, 200))  # as a member of a batch


def test_pauses_are_random_double_and_end_at_two_seconds() -> None:
    for retry, longest in [(1, 0.1), (2, 0.2), (5, 1.6), (6, 2), (5000, 2)]:
        pauses = [pause_s(retry) for _ in range(2000)]
        assert 0 <= min(pauses) < longest / 20 and longest * 0.95 < max(pauses) <= longest


def test_a_pause_is_longer_than_the_service_asks_by_a_random_time() -> None:
    pauses = [pause_s(1, 7) for _ in range(2000)]
    assert 7 <= min(pauses) < 7.005 and 7.095 < max(pauses) <= 7.1


def test_what_would_come_too_late_is_not_repeated() -> None:
    error = NoRoom({"retry_after": 0.06}, 503)
    retries = retries_of("http://a", for_s=0.2)
    assert (first := retries.pause_after(error, safe=True)) is not None and 0.06 <= first <= 0.16
    time.sleep(0.15)  # real time: the retries end 0.2 s after the first failure
    assert retries.pause_after(error, safe=True) is None
    assert retries_of("http://a", for_s=0).pause_after(error, safe=True) is None
    assert retries_of("http://a", for_s=1).pause_after(NoRoom({"retry_after": 2}, 503), safe=True) is None


def test_the_last_error_says_that_an_earlier_attempt_may_have_been_executed() -> None:
    retries = retries_of("http://a", for_s=10)
    retries.pause_after(Unavailable({}, 503), safe=True)
    last = Unreachable("", maybe_done=False)
    retries.pause_after(last, safe=True)
    assert last.maybe_done
