"""mykit-delay: REST. It adds and cancels; its jobs are popped by others."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from tests.wires.drivers import Added, Driver, RefusedError, Taken
from tests.wires.drivers.http import exchange

_JSON = {"Content-Type": "application/json"}


class Mykit(Driver):
    NAME = "mykit"
    POPS = False
    HAS_IDS = True
    SECONDS = False

    async def push(self, **members: Any) -> Any:
        response = await exchange(self._stream, "POST", "/push", json.dumps(members).encode(), _JSON)
        assert response.status == 200, response
        return response.json

    async def ask(self, operation: str, **query: Any) -> Any:
        response = await exchange(self._stream, "GET", f"/{operation}?{urlencode(query)}")
        assert response.status == 200, response
        return response.json

    async def _add(self, topic: str, body: bytes, delay_s: float, name: str, due: float) -> Added:
        named = {"id": name} if name else {}
        answer = await self.push(topic=topic, delay=round(delay_s * 1000), ttl=60_000, body=body.decode(), **named)
        if not answer["success"]:
            raise RefusedError(answer)
        return Added(answer["data"], due)

    async def _finish(self, job: Taken) -> bool:
        return bool((await self.ask("finish", jobId=job.name))["success"])

    async def _cancel(self, topic: str, name: Any) -> bool:
        return bool((await self.ask("delete", jobId=name))["success"])

    async def _is_there(self, topic: str, name: Any) -> bool:
        """It has no look: a restore of a live job succeeds, and changes nothing."""
        return bool((await self.ask("reStoreJob", jobId=name))["success"])

    async def refusals(self, topic: str) -> None:
        for members in ({"delay": 1, "body": "x"}, {"topic": topic, "delay": 1, "body": "x", "status": 3}):
            assert not (await self.push(**members))["success"], members
        assert not (await self.ask("finish", jobId="nothing"))["success"]
        assert not (await self.ask("delete"))["success"]
        bad = await exchange(self._stream, "POST", "/push", b"not JSON", _JSON)
        assert bad.status == 400
