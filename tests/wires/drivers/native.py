"""The native protocol: JSON over HTTP."""

from __future__ import annotations

import json
from typing import Any

from tests.wires.drivers import Added, Driver, RefusedError, Taken
from tests.wires.drivers.http import exchange


class Native(Driver):
    NAME = "native"
    HAS_IDS = True
    SETTLES = False
    SECONDS = False

    async def ask(self, command: str, **fields: Any) -> Any:
        """The answer to one command."""
        body = json.dumps({"command": command, **fields}).encode()
        return (await exchange(self._stream, "POST", "/command", body)).json

    async def _add(self, topic: str, body: bytes, delay_s: float, name: str, due: float) -> Added:
        fields = {"command": "add", "topic": topic, "delay": delay_s, "ttr": self.ttr_s} | (
            {"id": name} if name else {}
        )
        request = json.dumps(fields).encode()[:-1] + b',"body":' + _as_json(body) + b"}"
        answer = (await exchange(self._stream, "POST", "/command", request)).json
        if not answer["success"]:
            raise RefusedError(answer)
        return Added(answer["id"], due)

    async def _pop(self, topic: str, wait_s: float) -> Taken | None:
        request = json.dumps({"command": "pop", "topic": topic, "wait": wait_s}).encode()
        response = await exchange(self._stream, "POST", "/command", request)
        job = response.json
        if not job["success"]:
            raise RefusedError(job)
        return Taken(topic, job["id"], _body_of(response.body.decode()), job["lease"]) if job["id"] else None

    async def _finish(self, job: Taken) -> bool:
        return bool((await self.ask("finish", id=job.name, lease=job.lease))["success"])

    async def _cancel(self, topic: str, name: Any) -> bool:
        return bool((await self.ask("delete", id=name))["success"])

    async def _is_there(self, topic: str, name: Any) -> bool:
        answer = await self.ask("get", id=name)
        return bool(answer["success"]) and answer["state"] in ("delayed", "ready", "reserved", "dead")

    async def refusals(self, topic: str) -> None:
        for fields, code in (
            ({"topic": topic, "body": 1, "delay": -1}, "BAD_FIELD"),
            ({"topic": f"{topic}%", "body": 1}, "BAD_FIELD"),
            ({"topic": topic, "body": 1, "no": 1}, "UNKNOWN_FIELD"),
        ):
            assert (await self.ask("add", **fields))["code"] == code
        assert (await self.ask("finish", id="nothing", lease=1))["code"] == "NOT_FOUND"


def _as_json(body: bytes) -> bytes:
    """A text that is an object or array as it is, any other as a string, as the dialects do (wires.md, B1)."""
    try:
        if body[:1] in (b"{", b"["):
            json.loads(body)
            return body
    except (ValueError, RecursionError):
        pass
    return json.dumps(body.decode()).encode()


def _body_of(answer: str) -> bytes:
    """The body of the job in an answer: the text of a string, else the JSON as it travelled."""
    begin = answer.index('"value":') + len('"value":')
    value, end = json.JSONDecoder().raw_decode(answer, begin)
    return (value if isinstance(value, str) else answer[begin:end]).encode()
