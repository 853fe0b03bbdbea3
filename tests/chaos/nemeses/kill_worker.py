"""SIGKILL of a worker process with jobs in hand; another one is started in its place."""

from __future__ import annotations

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage


class KillWorker(Nemesis):
    async def strike(self, stage: Stage) -> None:
        worker = stage.chance.choice(stage.workers)
        with stage.history.fault("kill-worker"):
            await worker.kill()
            await worker.start()
