"""The log of actions while the service is killed in the middle of them: nothing is done without an entry, and no action
has two."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from jobqueue.access.issuing import Issued
from tests.kit.guarded import Guarded, bearer, guarded
from tests.kit.waiting import until

_CLIENTS = 24
_BEFORE_A_KILL = 60  # actions that are answered before the service is killed
_KILLS = 3
_WORKERS = 2
_LATER_S = 86_400
_STATE_BEHIND = {"run": "ready", "delete": "deleted"}
_A_PAGE = 500


class Stage:
    """Jobs of which each gets one action, and what was answered."""

    def __init__(self, service: Guarded, admin: Issued) -> None:
        self._service = service
        self._admin = admin
        self._session = aiohttp.ClientSession(headers=bearer(admin))
        self.answered = 0
        self.tried: dict[str, str] = {}
        """The action that each job got, whatever came of it."""

    async def close(self) -> None:
        """End its connections."""
        await self._session.close()

    async def fill(self, number: int) -> Iterator[str]:
        """Add jobs that are due much later; returns their ids."""
        ids = [f"{number}-{each}" for each in range(1000)]
        commands = [{"command": "add", "topic": "t", "id": each, "body": 1, "delay": _LATER_S} for each in ids]
        _, answers = await self._service.ask(self._admin, commands)
        assert all(answer["success"] for answer in answers)
        return iter(ids)

    async def act(self, jobs: Iterator[str]) -> None:
        """Do something with one job after the other, until the service is gone; nothing is repeated."""
        for job_id in jobs:
            command = ("run", "delete")[len(self.tried) % 2]
            self.tried[job_id] = command
            try:
                headers = {"X-Jobqueue-Actor": "zoe"}
                body = {"command": command, "id": job_id}
                async with self._session.post(f"{self._service.url}/command", json=body, headers=headers) as answer:
                    assert (await answer.json())["success"]
            except aiohttp.ClientError:
                return
            self.answered += 1

    async def entries(self) -> list[dict[str, Any]]:
        """All that is logged."""
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            _, page = await self._service.ask(self._admin, {"command": "actions", "count": _A_PAGE, **cursor})
            found += page["actions"]
            if not page["cursor"]:
                return found
            cursor = {"cursor": page["cursor"]}

    async def states(self) -> dict[str, str]:
        """The state of each job that got an action."""
        commands = [{"command": "get", "id": job_id} for job_id in self.tried]
        answers = [
            answer
            for first in range(0, len(commands), _A_PAGE)
            for answer in (await self._service.ask(self._admin, commands[first : first + _A_PAGE]))[1]
        ]
        return {answer["id"]: answer["state"] for answer in answers}


async def kill(service: Guarded, *, workers_only: bool) -> None:
    """kill -9 of the whole service, which starts again, or of its workers, which its supervisor replaces."""
    if not workers_only:
        await service.service.kill()
        await service.service.start()
        return
    pids = list(map(int, re.findall(r'"worker.started".*?"pid":(\d+)', service.log)))
    for pid in pids[-_WORKERS:]:
        with contextlib.suppress(ProcessLookupError):  # the new ones may not have logged yet
            os.kill(pid, signal.SIGKILL)
    await until(lambda: service.log.count('"worker.started"') == len(pids) + _WORKERS)


async def test_whatever_is_killed_nothing_is_done_without_an_entry_and_no_action_has_two() -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        async with guarded(Path(folder), workers=_WORKERS) as service:
            admin = await service.token("admin", name="chief")
            stage = Stage(service, admin)
            try:
                for number in range(_KILLS):
                    jobs, so_far = await stage.fill(number), stage.answered
                    clients = [asyncio.create_task(stage.act(jobs)) for _ in range(_CLIENTS)]
                    await until(lambda: stage.answered >= so_far + _BEFORE_A_KILL)  # noqa: B023 - it ends in this round
                    await kill(service, workers_only=number == 1)
                    await asyncio.gather(*clients)
                    await service.until_known(admin)
                await judge(stage)
            finally:
                await stage.close()


async def judge(stage: Stage) -> None:
    entries, states = await stage.entries(), await stage.states()
    logged = {entry["id"]: entry for entry in entries}
    assert [job_id for job_id, number in Counter(entry["id"] for entry in entries).items() if number > 1] == []
    assert len(entries) >= stage.answered
    for job_id, command in stage.tried.items():
        entry = logged.get(job_id)
        if states[job_id] == "delayed":
            assert entry is None or entry["outcome"] in ("not known", "UNAVAILABLE")
        else:
            assert states[job_id] == _STATE_BEHIND[command]
            assert entry and entry["action"] == command and entry["actor"] == "chief/zoe", (
                f"{job_id} was done by nobody"
            )
            assert entry["outcome"] in ("OK", "not known")
