"""`python -m tests.clients.gaps [NAME…]`: measure the gaps of the clients' workers, and print a table."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.clients.gaps.programs import PROGRAMS
from tests.clients.gaps.scenario import WAYS, run

MARKS_S = {"stop": 0.1, "kill": 1.0}
ROUNDS = 3


async def main(names: list[str]) -> None:
    """Print a line per client: its longest gaps, beside the marks."""
    print(f"longest gap in ms; marks: stop {MARKS_S['stop'] * 1000:.0f}, kill {MARKS_S['kill'] * 1000:.0f}")
    for program in PROGRAMS:
        if (names and program.name not in names) or program.lacks():
            continue
        gaps: dict[str, list[float]] = {way: [] for way in WAYS}
        again = 0
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory(prefix="jq-") as folder:
                result = await run(program, Path(folder), log=asyncio.subprocess.DEVNULL)
            again += result.received.again
            for way in gaps:
                gaps[way] += result.gaps[way]
        told = "; ".join(f"{way} {', '.join(f'{gap * 1000:.0f}' for gap in sorted(gaps[way]))}" for way in gaps)
        print(f"{program.name}: {told}; received twice: {again}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
