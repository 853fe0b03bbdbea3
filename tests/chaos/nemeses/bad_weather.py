"""Makes the network between the service and its Redis bad for a while: slow, cut in one or both directions, with
resets."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.chaos.nemeses import Nemesis
from tests.chaos.servers import Networked
from tests.chaos.stage import Stage
from tests.kit.proxy import FAIR, Weather


class BadWeather(Nemesis):
    """`for_s`: how long each of the `weathers` (options of Weather) lasts; they take turns."""

    def __init__(self, every_s: float, for_s: float, weathers: list[dict[str, Any]]) -> None:
        super().__init__(every_s)
        self._for_s = for_s
        self._weathers = [Weather(**options) for options in weathers]
        self._turn = 0

    async def strike(self, stage: Stage) -> None:
        weather = self._weathers[self._turn % len(self._weathers)]
        self._turn += 1
        with stage.history.fault("bad-weather"):
            self._proxy(stage).set(weather)
            await asyncio.sleep(self._for_s)
            await self.heal(stage)

    def _proxy(self, stage: Stage) -> Any:
        assert isinstance(stage.servers, Networked)
        return stage.servers.proxy

    async def heal(self, stage: Stage) -> None:
        self._proxy(stage).set(FAIR)
