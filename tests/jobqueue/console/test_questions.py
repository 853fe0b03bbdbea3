"""How often a question is put: as seldom as its answer changes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from jobqueue_client.access import Access, Token

from jobqueue.cli.client import Answer, Client, Refusal, Unreachable
from jobqueue.console.questions import Away, Questions


class Service(Client):
    """Answers what it is told to answer, and counts."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", Access(Token(is_taken=True), None))
        self.error: Exception | None = None
        self.asked = 0

    async def ask(self, command: str, **fields: Any) -> Answer:
        self.asked += 1
        if self.error:
            raise self.error
        return Answer({"success": True}, b"{}")


class Watch:
    """A clock that is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def puts(service: Service, questions: Questions, command: str) -> bool:
    """Whether a look at an answer asked the service."""
    before = service.asked
    with contextlib.suppress(Refusal, Away):
        await questions.ask(service, "", 1, command, {})
    return service.asked > before


@pytest.mark.parametrize(("command", "fresh_s"), [("stats", 1), ("figures", 10), ("health", 5)])
async def test_a_question_is_put_again_when_its_answer_may_have_changed(command: str, fresh_s: float) -> None:
    service, watch = Service(), Watch()
    questions = Questions(watch)
    assert await puts(service, questions, command)
    watch.now += fresh_s - 0.1
    assert not await puts(service, questions, command)
    watch.now += 0.2
    assert await puts(service, questions, command)
    questions.stale()
    assert await puts(service, questions, command)


async def test_a_service_that_did_not_answer_is_asked_again_after_a_second() -> None:
    service, watch = Service(), Watch()
    questions = Questions(watch)
    service.error = Unreachable("no service listens")
    assert await puts(service, questions, "figures")
    watch.now += 1.1
    assert await puts(service, questions, "figures")
    service.error = Refusal("figures", Answer({"code": "BAD_FIELD"}, b""), has_token=False)
    watch.now += 1.1
    assert await puts(service, questions, "figures")
    watch.now += 9
    assert not await puts(service, questions, "figures")


async def test_the_answers_that_nobody_asked_for_longest_are_forgotten() -> None:
    service, watch = Service(), Watch()
    questions = Questions(watch)
    for number in range(1000):
        await questions.ask(service, "", 1, "peek", {"topic": f"{number}"})
    service.error = Unreachable("no service listens")
    watch.now += 2
    with pytest.raises(Away):
        await questions.ask(service, "", 1, "peek", {"topic": "0"})
    kept = await questions.ask(service, "", 1, "peek", {"topic": "999"})
    assert (kept.fields, kept.trouble) == ({"success": True}, "no service listens")
