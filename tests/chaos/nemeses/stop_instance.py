"""SIGTERM of one instance, as in a rolling update; it is started again when it has ended."""

from __future__ import annotations

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage


class StopInstance(Nemesis):
    async def strike(self, stage: Stage) -> None:
        instance = stage.chance.choice(stage.instances)
        with stage.history.fault("stop-instance"):
            code = await instance.stop()
            assert code == 0, f"an instance ended with {code} on SIGTERM"
            await instance.start()

    async def heal(self, stage: Stage) -> None:
        for instance in stage.instances:
            if instance.process and instance.process.returncode is not None:
                await instance.start()
