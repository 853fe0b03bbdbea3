"""`python -m tests.deploy.proxies`: replace instances behind both proxies, and print the gaps of their workers."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from pathlib import Path

from tests.clients.gaps.programs import PROGRAMS
from tests.deploy.proxies.programs import PROXIES
from tests.deploy.proxies.upgrade import STEPS, run
from tests.packaging.older import installed

MARK_MS = 100


async def main() -> None:
    """Print a line for each worker: its longest gap in each step."""
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        folder = Path(name)
        result = await run([*itertools.product(PROGRAMS, PROXIES)], installed(folder), folder)
    print(f"longest gap in ms; mark: {MARK_MS}")
    for worker in result.workers:
        told = ", ".join(f"{step} {worker.gaps[step] * 1000:.0f}" for step in STEPS)
        print(f"{worker.topic}: {told}; of {worker.added} jobs {worker.again} came twice, {len(worker.early)} early")
    print(f"answers of 500 and above, which clients repeated: {result.errors}")


if __name__ == "__main__":
    asyncio.run(main())
