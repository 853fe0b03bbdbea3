"""Which address the Python client asks, and how long it leaves one out that failed."""

from __future__ import annotations

from collections import Counter

import pytest
from jobqueue_client import ShuttingDown, Unavailable, Unreachable
from jobqueue_client import options as addresses_module
from jobqueue_client.options import Addresses, Route
from jobqueue_client.retry import Retries

URLS = ["http://a", "http://b", "http://c"]
REFUSED = Unreachable("", maybe_done=False)
BROKEN = Unreachable("", maybe_done=True)


class Clock:
    """The monotonic clock of the addresses."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(addresses_module, "time", clock)
    return clock


def asked(retries: Retries) -> str:
    return retries.request(b"", 0).url


def test_many_clients_spread_over_the_addresses() -> None:
    firsts = Counter(Addresses(URLS).choose(()).url for _ in range(300))
    assert firsts.keys() == set(URLS) and min(firsts.values()) > 50


def test_an_address_that_refuses_is_left_out_and_the_next_one_is_asked_at_once(clock: Clock) -> None:
    addresses = Addresses(URLS)
    first, second, third = (address.url for address in addresses.order)
    retries = Retries(1.5, Route(addresses))
    for url, error in ((first, REFUSED), (second, ShuttingDown({}, 503))):
        assert asked(retries) == url
        assert retries.pause_after(error, safe=False) == 0
    assert asked(retries) == third
    retries.answered()
    assert asked(Retries(1.5, Route(addresses))) == third
    clock.now += 5.1
    assert asked(Retries(1.5, Route(addresses))) == first


def test_once_every_address_was_tried_the_usual_pauses_begin(clock: Clock) -> None:
    retries = Retries(1.5, Route(Addresses(URLS)))
    tried = []
    for _ in range(3):
        tried.append(asked(retries))
        pause = retries.pause_after(REFUSED, safe=True)
    assert sorted(tried) == URLS and pause is not None
    asked(retries)
    assert Retries(0, Route(Addresses(["http://a"]))).pause(None) is None
    assert all(_paused(retries) for _ in range(3))


def _paused(retries: Retries) -> bool:
    """Whether there is a pause (of a random length) after one more failure."""
    asked(retries)
    return retries.pause_after(Unreachable("", maybe_done=False, retry_after=0.01), safe=True) != 0


def test_after_a_broken_connection_only_what_is_safe_to_repeat_goes_to_the_next_address() -> None:
    for safe, pause in ((True, 0), (False, None)):
        retries = Retries(1.5, Route(Addresses(URLS)))
        asked(retries)
        assert retries.pause_after(BROKEN, safe=safe) == pause


def test_an_address_without_its_redis_is_not_left_out_but_the_retry_goes_to_the_next_one() -> None:
    addresses = Addresses(URLS)
    first, second, _ = (address.url for address in addresses.order)
    retries = Retries(1.5, Route(addresses))
    assert asked(retries) == first
    assert retries.pause_after(Unavailable({"retry_after": 0.01}, 503), safe=True) != 0
    assert asked(retries) == second
    assert asked(Retries(1.5, Route(addresses))) == first


def test_what_a_stopping_address_refused_of_a_batch_goes_to_the_next_one_at_once(clock: Clock) -> None:
    addresses = Addresses(URLS)
    first, second, _ = (address.url for address in addresses.order)
    retries = Retries(1.5, Route(addresses))
    assert asked(retries) == first
    assert retries.pause_after_members([ShuttingDown({"retry_after": 1}, 200)]) == 0
    assert asked(retries) == second
    assert asked(Retries(1.5, Route(addresses))) == second


def test_what_an_address_without_its_redis_refused_of_a_batch_goes_to_the_next_one_after_a_pause() -> None:
    addresses = Addresses(URLS)
    first, second, _ = (address.url for address in addresses.order)
    retries = Retries(1.5, Route(addresses))
    assert asked(retries) == first
    assert retries.pause_after_members([Unavailable({"retry_after": 0.01}, 200)]) != 0
    assert asked(retries) == second
    assert asked(Retries(1.5, Route(addresses))) == first


def test_each_failure_in_a_row_doubles_the_time_to_a_minute_and_an_answer_ends_it(clock: Clock) -> None:
    (address,) = Addresses(["http://a"]).order
    for seconds in (5, 10, 20, 40, 60, 60):
        clock.now += 100
        address.failed(clock.now)
        assert address.back_at == clock.now + seconds
    clock.now += 100
    address.answered(clock.now)
    address.failed(clock.now)
    assert address.back_at == clock.now + 5


def test_requests_that_fail_together_count_as_one_failure(clock: Clock) -> None:
    (address,) = Addresses(["http://a"]).order
    begun = clock.now
    for _ in range(100):
        clock.now += 0.001
        address.failed(begun)
    assert address.back_at == begun + 0.001 + 5
    address.answered(begun)  # an answer to a request from before the failure
    assert address.back_at > clock.now


def test_if_all_are_left_out_the_one_that_comes_back_first_is_asked(clock: Clock) -> None:
    addresses = Addresses(URLS)
    for address in reversed(addresses.order):
        clock.now += 1
        address.failed(clock.now)
    assert addresses.choose(()) is addresses.order[-1]
