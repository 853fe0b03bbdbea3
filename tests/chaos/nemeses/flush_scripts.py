"""SCRIPT FLUSH: Redis forgets all scripts."""

from __future__ import annotations

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage


class FlushScripts(Nemesis):
    async def strike(self, stage: Stage) -> None:
        with stage.history.fault("flush-scripts"):
            await stage.standalone.read("SCRIPT", "FLUSH")
