"""BullMQ: queue.add, addBulk and a Worker, in Node, over ioredis."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.compare import CannotError, Run
from bench.compare.install import NPM, node
from bench.compare.systems.library import Library
from bench.compare.systems.program import Program

_PROGRAM = Path(__file__).parents[1] / "programs" / "bullmq.mjs"
_WARMING = 3_000  # jobs after which Node has compiled the hot code


class BullMQ(Library):
    NAME = "bullmq"
    DESCRIPTION = (
        "BullMQ: one Node process adds (queue.add; addBulk, two at a time), another one is the Worker, with the "
        "connections as its concurrency; removeOnComplete and removeOnFail keep none (or, for tombstones, an "
        "hour). It sleeps for delayed jobs in a BZPOPMIN, whose timeout Redis looks at `hz` times a second; "
        "with Redis's default, 10 instead of 100, its p50 at 200/s was 47 ms, p99 95 ms. Workers take "
        "jobs one by one: for batches it is concurrency 100. Ids begin with job- as it refuses colons"
    )
    SCALE = 0.5
    MOST_PENDING = 100_000
    CONCURRENCY = 100
    ADDS_A_SECOND = 7_000

    def start(self, folder: Path) -> None:
        super().start(folder)
        self.pop_finish_batch(_WARMING, self.CONCURRENCY)

    def version(self) -> str:
        path = shutil.which("node")
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout if path else "?"
        return f"{NPM['bullmq']}, ioredis {NPM['ioredis']}, Node {said.strip().lstrip('v')}"

    def program(self, folder: Path) -> Program:
        home = node()
        return self.launch(["node", str(_PROGRAM), str(self._store.socket)], folder, BENCH_NODE=str(home))

    def finish_and_next(self, jobs: int, connections: int) -> Run:
        raise CannotError("its Worker always does so: see pop + finish")
