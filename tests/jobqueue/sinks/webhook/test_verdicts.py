"""What an answer means for the job, and which jobs wait when a host has no free slot."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from jobqueue_client import Bury, Retry
from yarl import URL

from jobqueue.sinks.webhook.callback import Answer, judge, pause_s, retry_after_s
from jobqueue.sinks.webhook.caller import Full, HostSlots, _redirected

NOW = 1795262296.0


def verdict(status: int, method: str = "POST", retry_after: str | None = None) -> tuple[str, float | None, str | None]:
    try:
        judge(Answer(status, retry_after, None), method, NOW)
    except Retry as again:
        return "retry", again.after, again.reason
    except Bury as end:
        return "bury", None, end.reason
    return "done", None, None


def test_the_status_says_what_becomes_of_the_job() -> None:
    assert {verdict(status)[0] for status in (200, 201, 202, 204, 299)} == {"done"}
    for status in (408, 425, 429, 500, 502, 503, 504, 599):
        assert verdict(status) == ("retry", None, f"HTTP {status}")
    for status in (300, 304, 305, 400, 401, 403, 404, 405, 410, 422, 451):
        assert verdict(status) == ("bury", None, f"HTTP {status}")
    assert verdict(302) == ("bury", None, "redirected with 302: a POST is not followed")
    assert verdict(307) == ("bury", None, "redirected with 307 to nowhere")


def test_a_retry_after_counts_with_any_status_but_a_good_one() -> None:
    for status in (302, 403, 404, 429, 503):
        assert verdict(status, retry_after="120") == ("retry", 120.0, f"HTTP {status}")
    assert verdict(200, retry_after="120")[0] == "done"
    assert verdict(404, retry_after="soon")[0] == "bury"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *((None, None), ("", None), ("soon", None), ("-5", None), ("1.5", None), ("Mon, 99 Foo 9999", None)),
        *(("0", 1.0), (" 7 ", 7.0), ("99999999", 86400.0), ("9" * 5000, 86400.0), ("٣", None)),
        ("Sat, 21 Nov 2026 11:59:56 GMT", 100.0),
        ("Sat, 21 Nov 2026 11:59:56 -0000", 100.0),
        ("Sat, 21 Nov 2020 11:59:56 GMT", 1.0),
    ],
)
def test_a_retry_after_is_seconds_or_a_date_from_one_second_to_a_day(text: str | None, seconds: float | None) -> None:
    assert retry_after_s(text, NOW) == seconds


def test_the_pause_doubles_to_an_hour() -> None:
    assert [pause_s(attempt) for attempt in (1, 2, 3, 12, 13, 65535)] == [1, 2, 4, 2048, 3600, 3600]


async def test_the_jobs_of_a_full_host_come_again_one_after_the_other() -> None:
    """With 2 slots, and 0.1 s assumed for an answer, the turns are 50 ms apart."""
    slots = HostSlots(per_host=2, total=2)  # none to wait in
    async with contextlib.AsyncExitStack() as calls:
        for _ in range(2):
            await calls.enter_async_context(slots.at("slow", patient=False))
        after_s = []
        for _ in range(2000):
            with pytest.raises(Full) as full:
                await calls.enter_async_context(slots.at("slow", patient=False))
            after_s.append(full.value.after_s)
        async with slots.at("quick", patient=False):
            pass
    assert 1 <= after_s[0] < after_s[10] < after_s[100] < 10
    assert max(after_s) == after_s[-1] == 60
    async with slots.at("slow", patient=False):  # they are free again
        pass


async def test_few_wait_for_a_place_and_the_patient_as_long_as_it_takes() -> None:
    slots = HostSlots(per_host=1, total=3)  # one to wait in
    order = []

    async def call(name: str, *, patient: bool) -> None:
        async with slots.at("slow", patient=patient):
            order.append(name)

    async with slots.at("slow", patient=False):
        waiting = asyncio.create_task(call("waiting", patient=False))
        await asyncio.sleep(0)
        with pytest.raises(Full):
            await call("one too many", patient=False)
        with pytest.raises(Full):  # after a second
            await waiting
        patient = asyncio.create_task(call("patient", patient=True))
        waiting = asyncio.create_task(call("waiting", patient=False))
        await asyncio.sleep(0)
    await asyncio.gather(patient, waiting)
    assert order == ["patient", "waiting"]


def test_a_redirect_from_https_to_http_is_not_followed() -> None:
    answer = Answer(307, None, "http://shop.example/b")
    assert str(_redirected(URL("http://shop.example/a"), answer)) == "http://shop.example/b"
    with pytest.raises(Bury) as end:
        _redirected(URL("https://shop.example/a"), answer)
    assert end.value.reason == "redirected with 307 from https to http"
