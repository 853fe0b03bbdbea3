"""camellia's delay queue server: forms over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from tests.wires.drivers import Added, Driver, RefusedError, Taken
from tests.wires.drivers.http import Response, exchange

_PATH = "/camellia/delayQueue/"
_LIVE = (1, 2, 3)
_FORM = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}


class Camellia(Driver):
    NAME = "camellia"
    HAS_IDS = True
    SECONDS = False

    async def ask(self, operation: str, **parameters: Any) -> Any:
        """The answer to a POST, which has HTTP status 200."""
        response = await self.post(operation, **parameters)
        assert response.status == 200, response
        return response.json

    async def post(self, operation: str, **parameters: Any) -> Response:
        return await exchange(self._stream, "POST", _PATH + operation, urlencode(parameters).encode(), _FORM)

    async def _add(self, topic: str, body: bytes, delay_s: float, name: str, due: float) -> Added:
        named = {"msgId": name} if name else {}
        answer = await self.ask(
            "sendMsg",
            topic=topic,
            msg=body.decode(),
            delayMillis=round(delay_s * 1000),
            ttlMillis=-1,
            maxRetry=-1,
            **named,
        )
        if answer["code"] != 200:
            raise RefusedError(answer)
        return Added(answer["delayMsg"]["msgId"], due)

    async def _pop(self, topic: str, wait_s: float) -> Taken | None:
        asked = {"topic": topic, "batch": 1, "ackTimeoutMillis": round(self.ttr_s * 1000)}
        if wait_s:
            answer = await self.ask("longPollingMsg", **asked, longPollingTimeoutMillis=round(wait_s * 1000))
        else:
            answer = await self.ask("pullMsg", **asked)
        if answer["code"] != 200:
            raise RefusedError(answer)
        for each in answer["delayMsgList"]:
            assert each["topic"] == topic and each["status"] == 3, each
            return Taken(topic, each["msgId"], each["msg"].encode())
        return None

    async def _finish(self, job: Taken) -> bool:
        answer = await self.ask("ackMsg", topic=job.topic, msgId=job.name, ack="true")
        if answer["code"] != 200:
            raise RefusedError(answer)
        return True

    async def _cancel(self, topic: str, name: Any) -> bool:
        return bool((await self.ask("deleteMsg", topic=topic, msgId=name, release="false"))["code"] == 200)

    async def _is_there(self, topic: str, name: Any) -> bool:
        answer = await self.ask("getMsg", topic=topic, msgId=name)
        return answer["code"] == 200 and answer["delayMsg"]["status"] in _LIVE

    async def refusals(self, topic: str) -> None:
        for operation, parameters, code in (
            ("sendMsg", {"topic": "", "msg": "x", "delayMillis": 0}, 400),
            ("sendMsg", {"topic": topic, "msg": "", "delayMillis": 0}, 400),
            ("sendMsg", {"topic": topic, "msg": "x", "delayMillis": 10**15}, 400),
            ("sendMsg", {"topic": topic, "msg": "x", "delayMillis": 0, "msgId": "%x"}, 400),
            ("sendMsg", {"topic": "x" * 300, "msg": "x", "delayMillis": 0}, 400),
            ("pullMsg", {"topic": ""}, 400),
            ("getMsg", {"topic": topic, "msgId": "nothing"}, 404),
            ("deleteMsg", {"topic": topic, "msgId": "nothing"}, 404),
        ):
            assert (await self.ask(operation, **parameters))["code"] == code, (operation, parameters)
        for operation, parameters in (("sendMsg", {"topic": topic}), ("pullMsg", {"topic": topic, "batch": "x"})):
            assert (await self.post(operation, **parameters)).status == 400
