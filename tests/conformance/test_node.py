"""Tests of the Node client alone: hooks and middleware, the limits of a worker, its log, and several instances."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.participants import PARTICIPANTS, Participant
from tests.conformance.stage import Stage
from tests.kit.service import ROOT, ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEAD = f"""
import {{ Bury, Client, Retry, Worker }} from '{ROOT}/clients/node/src/index.js';
const url = process.env.URL;
const tell = (...words) => process.stdout.write(`${{words.join(' ')}}\\n`);
"""


@pytest.fixture(scope="module", params=[each for each in PARTICIPANTS if each.name == "node"], ids=["node"])
def participant(request: pytest.FixtureRequest) -> Participant:
    chosen: Participant = request.param
    if missing := chosen.lacks():
        pytest.skip(missing)
    return chosen


class Program:
    """A running Node program: the lines that it writes, and its log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def line(self, wanted: str) -> None:
        """Wait for a line."""
        assert self.process.stdout
        async with asyncio.timeout(30):
            while wanted not in self.lines:
                raw = await self.process.stdout.readline()
                assert raw, f"it ended without {wanted!r}: {self.lines} {await self.log()}"
                self.lines.append(raw.decode().rstrip("\n"))

    async def end(self) -> int:
        """Wait until it ends; gives its exit code."""
        assert self.process.stdout
        async with asyncio.timeout(30):
            self.lines += (await self.process.stdout.read()).decode().splitlines()
            return await self.process.wait()

    async def log(self) -> list[dict[str, Any]]:
        assert self.process.stderr
        return [json.loads(line) for line in (await self.process.stderr.read()).splitlines()]

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@asynccontextmanager
async def program(code: str, url: str, folder: Path) -> AsyncIterator[Program]:
    file = folder / "program.mjs"
    file.write_text(HEAD + code)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *("node", str(file)), stdout=pipe, stderr=pipe, env=os.environ | {"URL": url}
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def add(stage: Stage, topic: str, number: int = 1, **fields: Any) -> None:
    told = await stage.client.ask("add", topic=topic, id=f"{topic}:{number}", **{"body": {"n": number}, **fields})
    assert told["success"], told


DYING = """
const events = [];
const told = [];
function tellOf(...words) {
  tell(...words);
  if (told.push(words) === 6) worker.stop(); // three errors and three deaths
}
const worker = new Worker(url, {
  heartbeat_s: 0,
  on_event: (name, { id, attempt, error }) => events.push([name, id, attempt, error?.message]),
  on_error: (error, job) => tellOf('error', job.id, error instanceof TypeError, error.message),
  on_death: (job, reason, error) => tellOf('death', job.id, reason, error.message),
});
worker.job('dying', async (job) => {
  if (job.id === 'dying:2') throw new Retry();
  if (job.id === 'dying:4') throw new Bury('poison');
  throw new TypeError('no such order');
});
await worker.run();
for (const event of events) tell(JSON.stringify(event));
process.exit(0);
"""


async def test_a_job_that_dies_is_told_with_its_attempt_and_its_error(stage: Stage, tmp_path: Path) -> None:
    await add(stage, "dying", 1, tries=2, backoff=[0], priority=3)
    await add(stage, "dying", 2, tries=1, priority=2)
    await add(stage, "dying", 3, ttr=0, priority=1)
    await add(stage, "dying", 4, priority=0)
    async with program(DYING, stage.service.url, tmp_path) as node:
        assert await node.end() == 0
        assert node.lines.count("error dying:1 true no such order") == 2
        assert "death dying:1 TypeError: no such order no such order" in node.lines
        assert "death dying:2 the tries ran out: 1 of 1 again" in node.lines
        assert "death dying:4 poison poison" in node.lines
        told = [json.loads(line) for line in node.lines if line.startswith("[")]
        ends = [each for each in told if each[0] not in ("job.started", "job.returned") and each[0].startswith("job.")]
        assert [each for each in ends if each[1] == "dying:1"] == [
            ["job.failed", "dying:1", 1, "no such order"],
            ["job.failed", "dying:1", 2, "no such order"],
            ["job.died", "dying:1", 2, "no such order"],
        ]
        assert [each for each in ends if each[1] == "dying:2"] == [["job.died", "dying:2", 1, "again"]]
        assert [each for each in ends if each[1] == "dying:3"] == [["job.failed", "dying:3", 1, "no such order"]]
        assert [each for each in ends if each[1] == "dying:4"] == [["job.buried", "dying:4", 1, "poison"]]
        last = (await node.log())[-1]
        sums = {name: last[name] for name in ("finished", "failed", "retried", "buried", "died", "lost")}
        assert last["message"] == "worker.stopped"
        assert sums == {"finished": 0, "failed": 3, "retried": 0, "buried": 1, "died": 2, "lost": 0}


FAILING = """
const worker = new Worker(url, { on_death: () => worker.stop() });
function close(order) {
  throw new RangeError(`order ${order} is not ours`);
}
worker.job('failing', async (job) => { close(job.body.n); });
await worker.run();
"""


async def test_a_failure_is_one_line_of_json_that_names_the_place(stage: Stage, tmp_path: Path) -> None:
    await add(stage, "failing", 1, tries=1, body={"n": 1, "card": "4111 1111"})
    async with program(FAILING, stage.service.url, tmp_path) as node:
        assert await node.end() == 0
        log = await node.log()
        (failed,) = [line for line in log if line["message"] == "job.failed"]
        line = 1 + (HEAD + FAILING).split("\n").index("  throw new RangeError(`order ${order} is not ours`);")
        assert (
            failed.items()
            >= {
                "level": "error",
                "topic": "failing",
                "id": "failing:1",
                "attempt": 1,
                "reason": "RangeError: order 1 is not ours",
                "at": f"{tmp_path}/program.mjs:{line}:9",
            }.items()
        )
        assert all(each["time"].endswith("Z") for each in log)
        assert [each["message"] for each in log] == [
            *("worker.started", "job.failed", "job.died", "worker.stopping", "worker.stopped")
        ]
        assert "4111 1111" not in json.dumps(log)


AROUND = """
const worker = new Worker(url);
worker.use(async (job, next) => {
  tell('outer', job.id);
  const result = await next();
  tell('outer after', result);
});
worker.use((job, next) => {
  tell('inner', job.id);
  if (job.body.n === 2) throw new Bury('not this one');
  return next();
});
worker.job('around', (job) => {
  tell('handler', job.id);
  if (job.body.n === 3) worker.stop();
  return 'done';
});
await worker.run();
process.exit(0);
"""


async def test_middleware_is_around_the_handler_and_may_decide_its_outcome(stage: Stage, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        await add(stage, "around", number, priority=9 - number)
    async with program(
        AROUND.replace("new Worker(url)", "new Worker(url, { concurrency: 1 })"), stage.service.url, tmp_path
    ) as node:
        assert await node.end() == 0
        assert node.lines == [
            *("outer around:1", "inner around:1", "handler around:1", "outer after done"),
            *("outer around:2", "inner around:2"),
            *("outer around:3", "inner around:3", "handler around:3", "outer after done"),
        ]
        states = [(await stage.client.ask("get", id=f"around:{number}"))["state"] for number in (1, 2, 3)]
        assert states == ["finished", "dead", "finished"]


LIMITED = """
const held = [];
const worker = new Worker(url, {
  ...JSON.parse(process.env.OPTIONS),
  on_event: (name, { reason }) => { if (name === 'worker.stopping') tell('stopping', reason); },
});
worker.job('limited', async (job) => {
  if (process.env.OPTIONS.includes('memory')) held.push(Buffer.alloc(200 << 20, 1));
  tell('handler');
});
tell('clean', await worker.run());
process.exit(0);
"""


@pytest.mark.parametrize(
    ("options", "reason", "handled"),
    [
        ({"max_jobs": 3, "concurrency": 2}, "max_jobs", 3),
        ({"max_jobs": 4, "concurrency": 10}, "max_jobs", 4),
        ({"max_time_s": 0.5}, "max_time", None),  # as many as the machine manages in the time
        ({"memory_mb": 200, "concurrency": 1}, "memory", 1),
    ],
)
async def test_a_limit_stops_the_worker_in_order(
    stage: Stage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    reason: str,
    handled: int | None,
) -> None:
    await stage.client.ask("purge", topic="limited")
    for number in range(8):
        await add(stage, "limited", number, if_exists="replace")
    monkeypatch.setenv("OPTIONS", json.dumps(options))
    async with program(LIMITED, stage.service.url, tmp_path) as node:
        assert await node.end() == 0
        done = node.lines.count("handler")
        assert handled in (None, done)
        assert node.lines[-2:] == [f"stopping {reason}", "clean true"]
    figures = await stage.figures("limited")
    assert (figures["ready"], figures["reserved"]) == (8 - done, 0)


FOLLOWING = """
const worker = new Worker({ urls: JSON.parse(process.env.URLS) });
worker.job('following', (job) => tell('did', job.id));
await worker.run();
process.exit(0);
"""


async def test_a_worker_of_two_instances_goes_on_when_one_stops_or_is_killed(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them it polls: each is stopped or killed, and comes back."""
    flags = stage.service._flags
    async with ServiceProcess(*flags[2:]) as other:
        both = [stage.service, other]
        monkeypatch.setenv("URLS", json.dumps([each.url for each in both]))
        async with program(FOLLOWING, "", tmp_path) as node:

            async def parked() -> bool:
                return any([await each.parked(1) for each in both if each.process and each.process.returncode is None])

            for number, (end, service) in enumerate((end, each) for end in ("stop", "kill") for each in both):
                await until(parked)
                await getattr(service, end)()
                await until(parked)  # at the other one
                await service.start()
                await add(stage, "following", number)
                await node.line(f"did following:{number}")
            node.terminate()
            assert await node.end() == 0
            assert not [line for line in await node.log() if line["message"].startswith("service.")]
