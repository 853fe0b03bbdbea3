"""The clock of all instances jumps an hour ahead, then an hour back; that of Redis is right. By libfaketime."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage

_LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


class WrongClock(Nemesis):
    """`for_s`: how long each wrong time lasts."""

    def __init__(self, every_s: float, for_s: float) -> None:
        super().__init__(every_s)
        self._for_s = for_s

    def environment(self, folder: Path) -> dict[str, str]:
        if not _LIBRARIES:
            raise RuntimeError("libfaketime is missing: apt-get install libfaketime")
        self._set(folder, "+0")
        return {
            "LD_PRELOAD": str(_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(folder / "faketime"),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def _set(self, folder: Path, offset: str) -> None:
        (folder / "faketime").write_text(offset + "\n")

    async def strike(self, stage: Stage) -> None:
        with stage.history.fault("wrong-clock"):
            for offset in ("+3600", "-3600"):
                self._set(stage.folder, offset)
                await asyncio.sleep(self._for_s)
            await self.heal(stage)

    async def heal(self, stage: Stage) -> None:
        self._set(stage.folder, "+0")
