"""The secret of a token is exchanged while clients work with it on several instances: nobody notices who changes to the
new one in time."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from jobqueue.access.issuing import Issued
from tests.kit.guarded import Guarded, bearer, guarded
from tests.kit.waiting import until

CLIENTS = 6
LONG_S = 3600.0
"""For which an old secret is kept while clients change."""
KEEP_S = 1.5
"""For which one is kept whose end is awaited."""
_BETWEEN = 12  # requests between the change of one client and that of the next
_CONNECTIONS = 24  # new ones in a row, so that each worker is asked


class Client:
    """Works without a pause: adds, waits for a job, finishes it, on one instance after the other."""

    def __init__(self, number: int, guarded: Guarded, token: Issued) -> None:
        self._number = number
        self._urls = itertools.cycle([f"{service.url}/command" for service in guarded.services])
        self.token = token
        self.requests = 0
        self.finished = 0
        self.failures: list[Any] = []

    async def run(self) -> None:
        async with aiohttp.ClientSession() as session:
            for turn in itertools.count():
                job_id = f"{self._number}-{turn}"
                await self._ask(session, {"command": "add", "topic": job_id, "id": job_id, "body": turn})
                popped = await self._ask(session, {"command": "pop", "topic": job_id, "wait": 5})
                finish = {"command": "finish", "id": job_id, "lease": popped.get("lease", 0)}
                done = await self._ask(session, [finish, {"command": "pop", "topic": "nothing"}])
                self.finished += done[0]["success"] if isinstance(done, list) else 0

    async def _ask(self, session: aiohttp.ClientSession, commands: Any) -> Any:
        async with session.post(next(self._urls), json=commands, headers=bearer(self.token)) as response:
            answer = await response.json()
        self.requests += 1
        answers = answer if isinstance(answer, list) else [answer]
        if response.status != 200 or not all(each["success"] for each in answers):
            self.failures.append((response.status, commands, answer))
        return answer


async def statuses(guarded: Guarded, token: Issued) -> set[int]:
    """How all workers of all instances take a token."""
    seen = set()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        for service in guarded.services:
            for _ in range(_CONNECTIONS):
                whoami = {"command": "whoami"}
                async with session.post(f"{service.url}/command", json=whoami, headers=bearer(token)) as response:
                    seen.add(response.status)
    return seen


async def all_say(guarded: Guarded, token: Issued, status: int) -> None:
    async def is_said() -> bool:
        return await statuses(guarded, token) == {status}

    await until(is_said)


async def test_no_request_fails_while_clients_change_to_the_new_secret_and_then_the_old_one_ends() -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with guarded(Path(name), instances=2, workers=2) as service, asyncio.TaskGroup() as group:
            old = await service.token("produce", "consume")
            await all_say(service, old, 200)
            clients = [Client(number, service, old) for number in range(CLIENTS)]
            works = [group.create_task(client.run()) for client in clients]
            await until(lambda: all(client.requests > _BETWEEN for client in clients))

            new = await service.issuing.rotate(old.record.id, keep_s=LONG_S)
            await all_say(service, new, 200)
            for client in clients:
                await until(_more(client.requests + _BETWEEN, client))
                client.token = new
            await until(lambda: all(client.requests > 10 * _BETWEEN for client in clients))
            await _the_old_one_ends(service)
            for work in works:
                work.cancel()
    assert not any(client.failures for client in clients), [client.failures[:3] for client in clients]
    assert all(client.finished > _BETWEEN for client in clients)


async def _the_old_one_ends(service: Guarded) -> None:
    """It holds as long as it is kept; then it is refused by all, a pop that waits with it, too."""
    old = await service.token("consume")
    await all_say(service, old, 200)
    waiting = asyncio.create_task(_waits(service, old))
    begun = time.monotonic()
    await service.issuing.rotate(old.record.id, keep_s=KEEP_S)
    assert await waiting == (401, "UNAUTHORIZED")
    assert time.monotonic() - begun > KEEP_S - 0.5  # by the clock of Redis, as the service knows it
    await all_say(service, old, 401)


def _more(requests: int, client: Client) -> Any:
    return lambda: client.requests >= requests


async def _waits(guarded: Guarded, token: Issued) -> tuple[int, str]:
    """What becomes of a pop that waits with a secret that ends."""
    status, answer = await guarded.ask(token, {"command": "pop", "topic": "nothing", "wait": 60})
    return status, answer["code"]
