"""Consumers in a process of their own, so that they can be stopped and killed together; started by
tests/chaos/stage.py.

`python -m tests.chaos.load.worker NAME SEED HISTORY URL…` ends on SIGTERM, once it has no job in hand.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tests.chaos.history import History
from tests.chaos.load.load import Load, Work


async def main(name: str, seed: int, path: Path, urls: list[str]) -> None:
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    with History(path) as history:
        async with Load(history, urls, seed, Work(producers=0, consumers=2, in_order=()), name).running():
            await end.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
