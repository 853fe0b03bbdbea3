"""`python -m tests.chaos`: runs the scenarios and prints a table; exits with 1 if anything was found."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import uvloop

from tests.chaos.run import Outcome, run
from tests.chaos.scenarios.catalog import SCENARIOS
from tests.chaos.scenarios.programs import PROGRAMS
from tests.chaos.scenarios.scenario import Scenario
from tests.chaos.table import HEAD, row

FOLDER = Path(".chaos")
_SHOWN = 10


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    names = [*(scenario.name for scenario in SCENARIOS), *PROGRAMS]
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", default=names, help=", ".join(names))
    parser.add_argument("--short", action="store_true", help="run each briefly, without pass marks for lateness")
    parser.add_argument("--seconds", type=float, help="time under attack, instead of that of each scenario")
    parser.add_argument("--again", action="store_true", help="run a scenario that failed again, alone, once")
    parser.add_argument("--seed", type=int, help="repeats the choices of a run; random by default")
    return parser.parse_args(given)


async def run_all(scenarios: list[Scenario], wanted: argparse.Namespace, seed: int) -> list[Outcome]:
    """Run two scenarios at a time, then those that measure lateness, one by one. In the short form none measures it:
    four at a time, as most of each is waiting."""
    turns = asyncio.Semaphore(4 if wanted.short else 2)
    width = max((len(scenario.name) for scenario in scenarios), default=0)
    print(f"seed {seed}\n{'scenario':{width}}  {HEAD}", flush=True)

    async def one(scenario: Scenario) -> Outcome:
        async with turns:
            seconds = wanted.seconds or (scenario.short_s if wanted.short else scenario.seconds)
            outcome = await run(scenario, seconds, seed, FOLDER / f"{scenario.name}-{seed}", wanted.short)
        print(f"{scenario.name:{width}}  {row(outcome)}", flush=True)
        return outcome

    alone = [scenario for scenario in scenarios if scenario.alone and not wanted.short]
    together = [scenario for scenario in scenarios if scenario not in alone]
    outcomes = list(await asyncio.gather(*(one(scenario) for scenario in together)))
    return outcomes + [await one(scenario) for scenario in alone]


async def run_again(failures: Sequence[Outcome], wanted: argparse.Namespace) -> list[Outcome]:
    """Run scenarios again, one by one, with another seed; return those that failed again."""
    twice = []
    for outcome in failures:
        (last,) = await run_all([outcome.scenario], wanted, outcome.seed + 1)
        if last.passed:
            print(f"flaky: chaos {outcome.scenario.name}", flush=True)
        else:
            explain(last)
            twice.append(last)
    return twice


async def run_programs(names: Sequence[str]) -> list[str]:
    """Run the programs one after another; return the output of those that found something."""
    found = []
    for name in names:
        good, said = await PROGRAMS[name].run()
        print(f"{name} {'passed' if good else 'FOUND'}:", *said.splitlines()[-1:], flush=True)
        found += [] if good else [f"{name}:\n{said}"]
    return found


def explain(outcome: Outcome) -> None:
    """Print what was found, and the command that repeats it."""
    findings = outcome.report.findings
    print(f"\n{outcome.scenario.name}, seed {outcome.seed}: {len(findings)} findings; history in {outcome.folder}")
    print(f"  promised: {outcome.scenario.says}")
    for finding in findings[:_SHOWN]:
        print(f"  {finding}")


def main() -> int:
    wanted = arguments()
    seed = random.randrange(1_000_000) if wanted.seed is None else wanted.seed
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in wanted.only]
    failures = [outcome for outcome in uvloop.run(run_all(scenarios, wanted, seed)) if not outcome.passed]
    for outcome in failures:
        explain(outcome)
    if wanted.again and failures:
        failures = uvloop.run(run_again(failures, wanted))
    programs = [] if wanted.short else [name for name in PROGRAMS if name in wanted.only]
    said = uvloop.run(run_programs(programs))
    print(*said, sep="\n\n", end="")
    with suppress(OSError):  # if not empty, it holds a history, of this run or an earlier one
        FOLDER.rmdir()
    return 1 if failures or said else 0


if __name__ == "__main__":
    sys.exit(main())
