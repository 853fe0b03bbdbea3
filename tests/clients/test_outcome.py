"""What the Python worker sends when a handler ends, and what it does when the hook fails."""

from __future__ import annotations

from typing import Any

import pytest
from jobqueue_client import Bury, Job, Lost, NotFound, Refused, Retry, ShuttingDown, Unauthorized, Unavailable, Worker
from jobqueue_client.job import LostReason
from jobqueue_client.worker.outcome import outcome
from jobqueue_client.worker.report import Contact, Hooks, Report


def job(lost: LostReason | None = None) -> Job:
    made = Job("1", "t", None, lease=7, attempt=1, tries=1, due=0, ttr=60)
    if lost is not None:
        made.lose(lost)
    return made


@pytest.mark.parametrize("error", [None, RuntimeError("x"), Retry(1), Bury("x"), Lost("stale")])
@pytest.mark.parametrize("lost", ["deleted", "stopping"])
def test_nothing_is_sent_for_a_job_that_is_gone(lost: LostReason, error: Exception | None) -> None:
    assert outcome(job(lost), error).command is None


@pytest.mark.parametrize("lost", ["stale", "expired"])
def test_a_late_finish_is_sent_because_it_may_count(lost: LostReason) -> None:
    assert outcome(job(lost), None).command == {"command": "finish", "id": "1", "lease": 7}
    assert outcome(job(lost), Lost(lost)).command is None


def test_a_lone_surrogate_in_a_reason_can_be_sent() -> None:
    reasons = [
        outcome(job(), error).reason for error in (RuntimeError("\ud800"), Bury("\ud800"), Retry(reason="\ud800"))
    ]
    assert reasons == ["RuntimeError: ?", "?", "?"]


def test_a_retry_on_the_last_try_says_that_the_tries_ran_out() -> None:
    last, first = job(), Job("1", "t", None, lease=7, attempt=1, tries=2, due=0, ttr=60)
    assert outcome(last, Retry()).reason == "the tries ran out: 1 of 1"
    command = outcome(last, Retry(after=30)).command
    assert command and command["reason"] == "the tries ran out: 1 of 1"
    assert outcome(last, Retry(reason="not paid")).reason == "not paid"
    assert outcome(last, Retry(attempt=False)).reason is outcome(first, Retry()).reason is None


@pytest.mark.parametrize("refusal", [ShuttingDown({}, 503), Unavailable({}, 503), Unauthorized({}, 401)])
def test_a_service_that_stops_or_is_without_its_redis_or_lets_nobody_in_is_lost_until_it_answers(
    refusal: Refused,
) -> None:
    events: list[str] = []
    contact = Contact(Report(Hooks(lambda name, fields: events.append(name))))
    contact.batch_answered([{"success": True}, refusal])
    contact.batch_answered([refusal])
    contact.batch_answered([NotFound({}, 404)])
    assert events == ["service.lost", "service.back"]


@pytest.mark.parametrize("name", ["on_event", "on_error", "on_death"])
def test_a_hook_that_would_have_to_be_awaited_is_refused_because_it_would_never_run(name: str) -> None:
    async def hook(*about: Any) -> None: ...

    for wrong in (hook, "hook"):
        options: dict[str, Any] = {name: wrong}
        with pytest.raises(TypeError, match=f"{name} must be a regular function"):
            Worker("http://localhost:8000", **options)


def test_an_error_of_a_hook_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    def hook(*about: Any) -> None:
        raise RuntimeError(about)

    report = Report(Hooks(hook, hook, hook))
    report.event("worker.started", worker="w")
    report.error(ValueError(), job())
    report.death(job(), "x", ValueError())
    for name in ("on_event", "on_error", "on_death"):
        assert f"the hook {name} failed" in caplog.text
