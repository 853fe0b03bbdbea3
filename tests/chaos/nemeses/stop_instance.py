"""SIGTERM of an instance, as in a rolling update; it is restarted once it has ended."""

from __future__ import annotations

import asyncio

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage

_LONGEST_S = 12.0  # the service's grace_s plus a margin


class StopInstance(Nemesis):
    async def strike(self, stage: Stage) -> None:
        instance = stage.chance.choice(stage.instances)
        with stage.history.fault("stop-instance"):
            async with asyncio.timeout(_LONGEST_S):
                code = await instance.stop()
            assert code == 0, f"an instance ended with {code} on SIGTERM"
            await instance.start()

    async def heal(self, stage: Stage) -> None:
        for instance in stage.instances:
            if instance.process and instance.process.returncode is not None:
                await instance.start()
