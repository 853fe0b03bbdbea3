"""The nemeses: the contract, and the table of all. Each breaks one thing, and has its own file.

A nemesis records each of its faults in the history (`stage.history.fault`), from just before it breaks something until
everything is as before, along with what the fault may forget. It is created for each run, with `every_s` and the
options that the scenario gives.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tests.chaos.stage import Stage

NEMESES = {
    "kill-instance": "tests.chaos.nemeses.kill_instance:KillInstance",
    "stop-instance": "tests.chaos.nemeses.stop_instance:StopInstance",
    "pause-holder": "tests.chaos.nemeses.pause_holder:PauseHolder",
    "pause-worker": "tests.chaos.nemeses.pause_worker:PauseWorker",
    "kill-worker": "tests.chaos.nemeses.kill_worker:KillWorker",
    "kill-redis": "tests.chaos.nemeses.kill_redis:KillRedis",
    "cut-power": "tests.chaos.nemeses.cut_power:CutPower",
    "freeze-redis": "tests.chaos.nemeses.freeze_redis:FreezeRedis",
    "sleep-redis": "tests.chaos.nemeses.sleep_redis:SleepRedis",
    "flush-scripts": "tests.chaos.nemeses.flush_scripts:FlushScripts",
    "fill-memory": "tests.chaos.nemeses.fill_memory:FillMemory",
    "wrong-clock": "tests.chaos.nemeses.wrong_clock:WrongClock",
    "kill-master": "tests.chaos.nemeses.kill_master:KillMaster",
    "freeze-master": "tests.chaos.nemeses.freeze_master:FreezeMaster",
    "step-down": "tests.chaos.nemeses.step_down:StepDown",
    "move-slots": "tests.chaos.nemeses.move_slots:MoveSlots",
    "freeze-replicas": "tests.chaos.nemeses.freeze_replicas:FreezeReplicas",
    "cut-off": "tests.chaos.nemeses.cut_off:CutOff",
    "bad-weather": "tests.chaos.nemeses.bad_weather:BadWeather",
    "compressed-bodies": "tests.chaos.nemeses.compressed_bodies:CompressedBodies",
    "vanish": "tests.chaos.nemeses.vanish:Vanish",
}
"""The class of each nemesis, by its name in scenarios and histories."""


class Nemesis(ABC):
    """`every_s`: the pause before each strike, in seconds, during which all is well."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s

    def environment(self, folder: Path) -> dict[str, str]:
        """The environment variables that instances need for it; `folder` belongs to the run."""
        return {}

    @abstractmethod
    async def strike(self, stage: Stage) -> None:
        """Cause one fault, and return once everything is as before."""

    async def heal(self, stage: Stage) -> None:  # noqa: B027 - most leave nothing behind
        """Undo what a cancelled strike left broken."""


def make(name: str, **options: Any) -> Nemesis:
    """Create the nemesis of that name."""
    module, _, cls = NEMESES[name].partition(":")
    nemesis: Nemesis = getattr(importlib.import_module(module), cls)(**options)
    return nemesis
