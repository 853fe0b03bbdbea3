"""lmstfy: HTTP; a topic is `namespace/queue`."""

from __future__ import annotations

import base64
import math
from typing import Any
from urllib.parse import urlencode

from tests.wires.drivers import Added, Driver, RefusedError, Taken
from tests.wires.drivers.http import Response, exchange

_TRIES = 1000


class Lmstfy(Driver):
    NAME = "lmstfy"

    async def ask(self, method: str, path: str, body: bytes = b"", **query: Any) -> Response:
        target = f"/api/{path}" + (f"?{urlencode(query)}" if query else "")
        return await exchange(self._stream, method, target, body)

    async def _add(self, topic: str, body: bytes, delay_s: float, name: str, due: float) -> Added:
        response = await self.ask("PUT", topic, body, delay=int(delay_s), ttl=0, tries=_TRIES)
        if response.status != 201:
            raise RefusedError(response)
        return Added(response.json["job_id"], due)

    async def _pop(self, topic: str, wait_s: float) -> Taken | None:
        response = await self.ask("GET", topic, ttr=math.ceil(self.ttr_s), timeout=math.ceil(wait_s))
        if response.status == 404:
            return None
        if response.status != 200:
            raise RefusedError(response)
        job = response.json
        assert f"{job['namespace']}/{job['queue']}" == topic, job
        return Taken(topic, job["job_id"], base64.b64decode(job["data"], validate=True))

    async def _finish(self, job: Taken) -> bool:
        return await self._cancel(job.topic, job.name)

    async def _cancel(self, topic: str, name: Any) -> bool:
        response = await self.ask("DELETE", f"{topic}/job/{name}")
        if response.status != 204:
            raise RefusedError(response)
        return True

    async def _is_there(self, topic: str, name: Any) -> bool:
        return (await self.ask("GET", f"{topic}/job/{name}")).status == 200

    async def refusals(self, topic: str) -> None:
        for method, path, query in (
            ("PUT", topic, {"delay": "x"}),
            ("PUT", topic, {"delay": 9, "ttl": 8}),
            ("PUT", topic, {"tries": 0}),
            ("PUT", f"{topic}!", {}),
            ("GET", topic, {"ttr": 0}),
            ("GET", topic, {"count": 0}),
            ("GET", topic, {"count": 101}),
        ):
            response = await self.ask(method, path, b"x" if method == "PUT" else b"", **query)
            assert response.status == 400 and response.json["error"], (method, path, query, response)
        assert (await self.ask("GET", f"{topic}/job/nothing")).status == 404
        assert (await self.ask("DELETE", f"{topic}/job/nothing")).status == 204
