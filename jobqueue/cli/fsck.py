"""`jobqueue fsck`: checks the data for an operator; it talks to Redis directly, while the service runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from buckets import Fsck
from buckets.errors import JobQueueError, Unavailable
from buckets.fsck.shard import KINDS, Report
from jobqueue import logs, settings
from jobqueue.errors import SettingsError
from jobqueue.redis_server.data_directory import running_at
from jobqueue.redis_server.opening import redis_at
from jobqueue.settings import Settings


class _CannotCheck(click.ClickException):
    """The data could not be checked, so the exit code is neither 0 (good) nor 1 (faulty)."""

    exit_code = 2


def inspect(flags: Mapping[str, Any], config: str | None, *, repair: bool, as_json: bool) -> int:
    """Check, print the findings, and return the exit code: 0 if all is well or was repaired, 1 if faults are left."""
    try:
        chosen = settings.load(flags, config)
        logs.set_up("error", "text")
        report = asyncio.run(_check(chosen, repair))
    except SettingsError as error:
        raise _CannotCheck(str(error)) from None
    except JobQueueError as error:
        raise _CannotCheck(error.message) from None
    if as_json:
        click.echo(json.dumps(_as_json(report)))
    else:
        _print(Console(highlight=False), report, repair)
    return 1 if report.faults else 0


async def _check(chosen: Settings, repair: bool) -> Report:
    url = chosen.redis or running_at(Path(chosen.data))
    redis = redis_at(url, chosen.redis_timeout_s)
    errors = Console(stderr=True)
    try:
        with errors.status("looking at keys") as status:  # shown on a terminal only
            check = await Fsck.open(
                redis,
                chosen.namespace,
                buckets=chosen.numbers(redis.is_cluster)[1],
                repair=repair,
                progress=lambda what, number: status.update(f"looking at {what} {number or ''}"),
            )
            return await check.run()
    except Unavailable as error:
        raise Unavailable(redis.trouble or error.message) from None
    finally:
        await redis.close()


def _as_json(report: Report) -> dict[str, Any]:
    findings = {
        kind: {"found": each.found, "repaired": each.repaired, "samples": each.samples}
        for kind, each in report.findings.items()
    }
    return {
        "jobs": report.jobs,
        "topics": report.topics,
        "schedules": report.schedules,
        "faults_left": report.faults,
        "findings": findings,
        "foreign": {"found": report.foreign.found, "samples": report.foreign.samples},
        "set_aside": report.aside,
        "counts_unverified": report.unverified,
    }


def _print(console: Console, report: Report, repair: bool) -> None:
    if report.findings:
        table = Table("found", "repaired", "what", "where")
        for kind, each in report.findings.items():
            more = ["…"] if each.found > len(each.samples) else []
            where = "\n".join([*each.samples, *more])
            table.add_row(str(each.found), str(each.repaired), KINDS[kind], where)
        console.print(table, markup=False)
    schedules = f" and {report.schedules:,} schedules" if report.schedules else ""
    console.print(
        f"{report.jobs:,} jobs and tombstones in {report.topics:,} topics{schedules}: {_verdict(report, repair)}"
    )
    if report.foreign.found:
        number, where = report.foreign.found, ", ".join(report.foreign.samples)
        console.print(f"{number} unknown keys under our hash tag were left alone: {where}", markup=False)
    if report.aside:
        console.print(f"{report.aside} records or keys were set aside in the hashes {{…}}:x", markup=False)
    if report.unverified:
        names = ", ".join(report.unverified[:10])
        console.print(
            f"The counts of {len(report.unverified)} topics kept changing and were not verified: {names}", markup=False
        )


def _verdict(report: Report, repair: bool) -> str:
    if not report.findings:
        return "all is well"
    if not report.faults:
        return "all faults were repaired"
    return f"{report.faults} faults are left" + ("" if repair else "; --repair repairs them")
