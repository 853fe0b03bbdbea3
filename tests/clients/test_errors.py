"""What the errors of the Python client say."""

from __future__ import annotations

from typing import Any

import pytest
from jobqueue_client import AsyncClient, Client, JobQueueError, Refused, Unreachable
from jobqueue_client.errors import refusal
from jobqueue_client.http import Reply
from jobqueue_client.http.codec import read_many

NOT_FOUND = {"success": False, "code": "NOT_FOUND", "error": "no such job"}
FINISHED = {"success": False, "code": "WRONG_STATE", "error": "it cannot be deleted", "state": "finished"}


@pytest.mark.parametrize(
    ("command", "answer", "words"),
    [
        ({"command": "delete", "id": "ord-7"}, NOT_FOUND, "delete ord-7: no such job"),
        ({"command": "delete", "id": "ord-7"}, FINISHED, "delete ord-7: it cannot be deleted (the job is finished)"),
        (
            {"command": "run", "id": "ord-7"},
            {"error": "too late: the job is ready", "state": "ready"},
            "run ord-7: too late: the job is ready",
        ),
        ({"command": "add", "topic": "mail"}, {"error": "the topic is full"}, "add mail: the topic is full"),
        ({"command": "pop", "topics": ["a", "b"]}, {"error": "not now"}, "pop a, b: not now"),
        ({"command": "stats"}, {"code": "INTERNAL"}, "INTERNAL"),
        ({"id": "ord-7"}, {"error": "command is missing"}, "command is missing"),
        ({"command": "pop", "topics": 7}, {"error": "topics must be a list"}, "topics must be a list"),
    ],
)
def test_a_refusal_names_the_command_its_job_and_the_state(
    command: dict[str, Any], answer: dict[str, Any], words: str
) -> None:
    assert str(refusal(answer, 409, command=command)) == words


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nowhere.invalid"])
async def test_an_unreachable_service_is_reported_with_the_command_its_job_and_the_address(url: str) -> None:
    with Client(url, retry_for_s=0) as client, pytest.raises(Unreachable) as in_a_thread:
        client.delete("ord-7")
    async with AsyncClient(url, retry_for_s=0.1) as client:
        with pytest.raises(Unreachable) as in_a_loop:
            await client.add("mail", 1, id="ord-7")
    assert str(in_a_thread.value).startswith(f"delete ord-7: {url}: ") and not in_a_thread.value.maybe_done
    assert str(in_a_loop.value).startswith(f"add ord-7: {url}: ") and not in_a_loop.value.maybe_done


def test_a_refusal_in_a_batch_names_its_own_command() -> None:
    reply = Reply(200, None, b'[{"success":true},{"success":false,"code":"NOT_FOUND","error":"no such job"}]')
    _, refused = read_many(reply, [{"command": "finish", "id": "1"}, {"command": "finish", "id": "2"}])
    assert isinstance(refused, Refused) and isinstance(refused, JobQueueError)
    assert str(refused) == "finish 2: no such job"
