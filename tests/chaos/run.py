"""One run of a scenario: sets the stage, runs load and nemeses, and has the history judged."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
import traceback
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.chaos.history import Event, History, read
from tests.chaos.judges.checker import check
from tests.chaos.judges.findings import Finding, Report
from tests.chaos.load.load import Load, Work
from tests.chaos.load.slicing import slicing
from tests.chaos.nemeses import Nemesis, make
from tests.chaos.resources import measure, note, note_at_rest
from tests.chaos.scenarios.scenario import Scenario, judge
from tests.chaos.stage import Instance, Stage, WorkerProcess
from tests.chaos.survey import drained, survey

WARM_UP_S = 1.0
DRAIN_S = 180.0
MOST_S = 600.0
"""A run that takes this much longer than its attack counts as hung. Both are far more than a slow machine needs."""
_NEVER_SAID = ("Traceback", "schedule.blocked")


@dataclass
class Outcome:
    """The outcome of a run. `folder` is deleted if nothing was found."""

    scenario: Scenario
    seed: int
    report: Report
    strikes: int
    folder: Path

    @property
    def passed(self) -> bool:
        return not self.report.findings


async def run(scenario: Scenario, seconds: float, seed: int, folder: Path, short: bool = False) -> Outcome:
    """Run a scenario with `seconds` under attack. Its history and logs stay in `folder` if anything is found."""
    parts = folder / "parts"
    shutil.rmtree(folder, ignore_errors=True)
    parts.mkdir(parents=True)
    nemeses = [make(name, **scenario.options(name, short)) for name in scenario.nemeses]
    broke: list[Finding] = []
    late: list[Finding] = []
    with History(parts / "load.jsonl") as history:
        try:
            async with (
                asyncio.timeout(seconds + MOST_S),
                _stage(scenario, nemeses, seed, folder, history) as stage,
            ):
                work = scenario.short_work if short and scenario.short_work else scenario.work
                if not await _play(stage, work, nemeses, seconds, seed):
                    late.append(Finding("stuck", f"the queue was not drained within {DRAIN_S:g} s"))
        except Exception as error:  # this run's only; others may be going on
            (folder / "error.txt").write_text("".join(traceback.format_exception(error)))
            broke.append(Finding("run", f"{error!r}: see {folder}/error.txt"))
    events = read(parts)
    report = await asyncio.to_thread(check, events)
    if broke:  # before the final reads: what was lost or skipped is unknown, and the queue was not drained
        unknown = ("lost", "stuck", "skipped")
        report.found = [finding for finding in report.found if finding.invariant not in unknown] + broke
    strikes = sum(event.kind == "begin" for event in events)
    report.found += late
    report.found += judge(scenario.promise, report, seconds, strikes, short)
    report.found += _complaints(folder)
    _keep(folder, events, report)
    return Outcome(scenario, seed, report, strikes, folder)


async def _play(stage: Stage, work: Work, nemeses: list[Nemesis], seconds: float, seed: int) -> bool:
    """Run load and attack, drain the queue, and do the final reads. Returns whether the queue was drained in time."""
    load = Load(stage.history, stage.urls, seed, work)
    async with load.running() as end_adds:
        await asyncio.sleep(WARM_UP_S)
        before = await measure(stage)
        note(before, "before", stage.history)
        async with slicing(stage.servers.url):
            await _attack(stage, nemeses, seconds)
        _check_alive(stage)
        await end_adds()
        for worker in stage.workers:
            await worker.stop()
            assert worker.process and worker.process.returncode == 0, "a worker process ended badly: see its stderr"
        is_drained = await drained(stage.urls, stage.history, DRAIN_S)
    await survey(stage.urls, stage.servers.url, load.ids, stage.history)
    if is_drained:  # otherwise the service would never be at rest
        await note_at_rest(stage, before)
    return is_drained


def _check_alive(stage: Stage) -> None:
    """Check that only what a nemesis ended has ended, and that it has been restarted."""
    processes = [each.process for each in stage.instances] + [each.process for each in stage.workers]
    assert all(process and process.returncode is None for process in processes), "a process ended by itself"


@contextlib.asynccontextmanager
async def _stage(
    scenario: Scenario, nemeses: list[Nemesis], seed: int, folder: Path, history: History
) -> AsyncIterator[Stage]:
    """Start servers, instances and worker processes; stop them and clean up whatever happens."""
    environment: dict[str, str] = {}
    for nemesis in nemeses:
        environment |= nemesis.environment(folder)
    # Not in `folder`: the path of a Unix socket is limited to 107 characters.
    with tempfile.TemporaryDirectory(prefix="jq-chaos-") as data:
        async with scenario.servers(Path(data)) as servers, contextlib.AsyncExitStack() as stack:
            flags = ("--redis", servers.url, *scenario.flags)
            instances = [
                Instance(*flags, log=folder / f"instance-{number}.log", environment=environment)
                for number in range(scenario.instances)
            ]
            for instance in instances:
                stack.push_async_callback(_end, instance)
            await asyncio.gather(*(instance.start() for instance in instances))
            urls = [instance.url for instance in instances]
            workers = [WorkerProcess(f"w{number}", urls, folder / "parts", seed) for number in range(scenario.workers)]
            for worker in workers:
                stack.push_async_callback(worker.kill)
                await worker.start()
            yield Stage(servers, instances, workers, history, random.Random(seed), folder)


async def _end(instance: Instance) -> None:
    if instance.process:
        await instance.__aexit__()


async def _attack(stage: Stage, nemeses: list[Nemesis], seconds: float) -> None:
    """Run all nemeses for this long, then heal everything. A strike that has begun is allowed to finish."""
    end = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.TaskGroup() as group:
            for nemesis in nemeses:
                group.create_task(_strikes(stage, nemesis, end))
    except BaseException:
        for nemesis in nemeses:
            await nemesis.heal(stage)
        raise
    await asyncio.sleep(max(0.0, end - asyncio.get_running_loop().time()))


async def _strikes(stage: Stage, nemesis: Nemesis, end: float) -> None:
    clock = asyncio.get_running_loop().time
    while clock() + nemesis.every_s < end:
        await asyncio.sleep(nemesis.every_s)
        await nemesis.strike(stage)


def _complaints(folder: Path) -> list[Finding]:
    """Findings for what no log of an instance may say: that its code failed, or that an occurrence was made before."""
    logs = sorted(folder.glob("instance-*.log"))
    return [Finding("log", f"{word} in {log}") for log in logs for word in _NEVER_SAID if word in log.read_text()]


def _keep(folder: Path, events: list[Event], report: Report) -> None:
    """Keep the merged history, to whose lines the findings refer; or nothing if there are no findings."""
    if not report.findings:
        shutil.rmtree(folder)
        return
    for event in events:
        event.line = 0
    with (folder / "history.jsonl").open("wb") as file:
        file.writelines(msgspec.json.encode(event) + b"\n" for event in events)
    (folder / "findings.txt").write_text("".join(f"{finding}\n" for finding in report.found))
    shutil.rmtree(folder / "parts")
