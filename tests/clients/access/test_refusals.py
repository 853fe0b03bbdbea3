"""What the Python clients do when the service refuses their token, a right, or so many commands."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from jobqueue_client import (
    AsyncClient,
    Client,
    JobQueueError,
    ShuttingDown,
    Unauthorized,
    Unavailable,
    Unreachable,
    Worker,
)
from jobqueue_client.worker import report as contacts
from jobqueue_client.worker.report import Contact, Report

from tests.clients.access.guarded import UNAUTHORIZED, Guarded, Reply, accepts
from tests.conformance.tokens import NEWER_TOKEN, TOKEN

JOB = {"id": "x", "topic": "t", "value": 1, "lease": 1, "attempt": 1, "tries": 16, "due": 0, "ttr": 60, "headers": None}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "token"
    written.write_text(TOKEN)
    return written


async def test_all_calls_in_flight_while_the_token_is_exchanged_find_the_new_one(file: Path) -> None:
    with Guarded(accepts(NEWER_TOKEN)).serving() as server:
        async with AsyncClient(server.url, token_file=file) as client:
            await asyncio.to_thread(file.write_text, NEWER_TOKEN)
            await asyncio.gather(*(client.stats() for _ in range(10)))
            assert len(server.seen) <= 20
            await client.stats()
        assert server.shown[-1] == f"Bearer {NEWER_TOKEN}"


def test_threads_that_share_a_client_all_find_the_new_token(file: Path) -> None:
    failures: list[Exception] = []
    with Guarded(accepts(NEWER_TOKEN)).serving() as server, Client(server.url, token_file=file) as client:
        file.write_text(NEWER_TOKEN)

        def ask() -> None:
            try:
                client.stats()
            except JobQueueError as error:
                failures.append(error)

        threads = [threading.Thread(target=ask) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


async def test_a_worker_whose_token_is_refused_for_too_long_ends_with_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a handler waits for its end to be answered, so that it is not the poll that notices."""
    monkeypatch.setattr(contacts, "PATIENCE_S", 0.3)
    jobs = [JOB]

    def reply(authorization: str | None, asked: Any) -> Reply:
        return (200, {"success": True, "jobs": [jobs.pop()]}) if jobs else UNAUTHORIZED

    with Guarded(reply).serving() as server:
        worker = Worker(server.url, token=TOKEN, concurrency=1, grace_s=0)
        worker.job("t")(lambda job: None)
        with pytest.raises(Unauthorized, match="a valid token is needed"):
            await worker.serve()
        finishes = [each for each in server.seen if isinstance(each.commands, list)]
        assert len(finishes) > 1
        assert finishes[-1].commands[0] == {"id": "x", "lease": 1, "command": "finish"}


def test_a_token_is_given_up_only_after_a_time_in_which_every_answer_refused_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = Unauthorized({}, 401)
    contact = Contact(Report())
    contact.failed(refused)
    monkeypatch.setattr(contacts, "PATIENCE_S", 0)
    for other in (Unavailable({}, 503), ShuttingDown({}, 503), None):
        if other is None:
            contact.answered()
        else:
            contact.failed(other)
        monkeypatch.setattr(contacts, "PATIENCE_S", 60)
        contact.failed(refused)
        assert not contact.given_up.is_set()
    monkeypatch.setattr(contacts, "PATIENCE_S", 0)
    contact.failed(Unreachable("no connection", maybe_done=False))
    assert not contact.given_up.is_set()
    contact.batch_answered([refused, refused])
    assert contact.given_up.is_set()
    assert contact.refusal is refused
