"""`make bench`, or `python -m bench.compare --quick --systems ours,redis --works add,batch`.

`make bench-before BEFORE="COMMIT COMMIT"` compares versions of our own.

A full run without --out writes docs/bench.md, docs/bench.json, docs/lateness.svg and docs/growth.svg; any other run
without it only prints. It fails if a figure of ours is missing, but not for a peer.
"""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.compare import MissingError, System, machine, plots
from bench.compare.load.compiled import program
from bench.compare.report import OURS, Report
from bench.compare.rounds import Rounds
from bench.compare.systems.ours import Before, BeforeWithDefaultWorkers, DefaultWorkers
from bench.compare.works import FULL, QUICK, VERSIONS, WORKS, Sizes
from jobqueue.workers.cores import workers_for

DOCS = Path(__file__).parents[2] / "docs"
SYSTEMS = {
    "ours": "ours:Ours",
    "ours-aof": "ours:OnItsOwnRedis",
    "ours-valkey": "ours:OnValkey",
    "ours-beanstalkd": "ours_beanstalkd:OursByBeanstalkd",
    "redis": "bare_redis:Bare",
    "beanstalkd": "beanstalkd:Beanstalkd",
    "bullmq": "bullmq:BullMQ",
    "arq": "arq:Arq",
    "celery": "celery:Celery",
}
GROUPS = [*dict.fromkeys(work.group for work in WORKS), "growth"]
# What is compared with older versions of our own.
OF_VERSIONS = [group for group in GROUPS if group not in ("cycle", "bytes")]
SIZES = {"full": FULL, "quick": QUICK, "versions": VERSIONS}


def load(name: str) -> System:
    module, _, member = SYSTEMS[name].partition(":")
    system: System = getattr(importlib.import_module(f"bench.compare.systems.{module}"), member)()
    return system


def versions(commits: Sequence[str]) -> list[System]:
    """Our service as it is and as it was, with one worker, and with the default of each where that is another."""
    older = [version(commit) for commit in commits for version in (Before, BeforeWithDefaultWorkers)]
    return [load(OURS), *older, *([DefaultWorkers()] if workers_for(0) > 1 else [])]


def bench(systems: Sequence[System], groups: Sequence[str], sizes: Sizes, out: Path | None) -> Report:
    """Measure, print, and write the report to `out` if given. Raises MissingError without a C compiler."""
    program()
    about, begun = machine.description(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, Rounds(systems, sizes, Path(folder)) as rounds:
        rounds.run([work for work in WORKS if work.group in groups])
        if "growth" in groups:
            rounds.grow()
    about["took"] = f"{time.monotonic() - begun:.0f} s"
    report = Report(systems, rounds.found, sizes, about)
    print("\n" + report.markdown(), flush=True)
    if out:
        (out / "bench.md").write_text(report.markdown())
        (out / "bench.json").write_text(json.dumps(report.data(), indent=1) + "\n")
        plots.lateness(rounds.found, out / "lateness.svg")
        plots.growth(rounds.found, sizes, out / "growth.svg")
    return report


def _chosen(text: str, known: Sequence[str], what: str) -> list[str]:
    names = text.split(",") if text else list(known)
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no {what} {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description="Ours beside its peers.")
    parser.add_argument("--systems", default="", help=",".join(SYSTEMS))
    parser.add_argument("--works", default="", help=",".join(GROUPS))
    parser.add_argument(
        "--before", action="append", default=[], metavar="COMMIT", help="compare ours with older versions of it only"
    )
    parser.add_argument("--rounds", type=int, help="of all works but those that are done once")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, help="folder for bench.md, bench.json and the charts")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything that was started is stopped
    whole = not (chosen.quick or chosen.systems or chosen.works or chosen.before)
    sizes = SIZES["quick" if chosen.quick else "versions" if chosen.before else "full"]
    known = OF_VERSIONS if chosen.before else GROUPS
    names = _chosen(chosen.systems, list(SYSTEMS), "system")
    try:
        report = bench(
            versions(chosen.before) if chosen.before else [load(name) for name in names],
            _chosen(chosen.works, GROUPS, "work") if chosen.works else known,
            replace(sizes, rounds=chosen.rounds or sizes.rounds),
            chosen.out or (DOCS if whole else None),
        )
    except MissingError as error:
        sys.exit(str(error))
    sys.exit(1 if report.failed(OURS) else 0)


if __name__ == "__main__":
    main()
