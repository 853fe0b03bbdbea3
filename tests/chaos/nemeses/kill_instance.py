"""SIGKILL of an instance, which is restarted at once."""

from __future__ import annotations

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage


class KillInstance(Nemesis):
    async def strike(self, stage: Stage) -> None:
        instance = stage.chance.choice(stage.instances)
        with stage.history.fault("kill-instance"):
            await instance.kill()
            await instance.start()

    async def heal(self, stage: Stage) -> None:
        for instance in stage.instances:
            if instance.process and instance.process.returncode is not None:
                await instance.start()
