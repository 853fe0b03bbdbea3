"""`jobqueue journal run`, `walk` and `check`, as they are typed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from jobqueue.cli import options
from jobqueue.cli.journal.redis_options import reaching_redis
from jobqueue.cli.journal.typed import Source, warn_of_password


class _Period(click.ParamType[int]):
    """A duration above 0, in ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        ms: int = round(options.DURATION.convert(value, param, ctx) * 1000)
        if ms <= 0:
            self.fail(f"{value!r} is not more than 0", param, ctx)
        return ms


def _writing_journal(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which journal is written."""
    for option in (
        click.option(
            "--source", type=Source(), metavar="NAME", help="this namespace on this Redis, in the journal [namespace]"
        ),
        click.option("--to-file", "journal_file", metavar="FILE", help="file with its URL, instead of --to"),
        click.option(
            "--to", "journal", metavar="URL", help="the journal; also JOBQUEUE_JOURNAL or the setting journal"
        ),
    ):
        command = option(command)
    return reaching_redis(command)


@click.command("run", short_help="Write what was recorded to the journal, until SIGTERM")
@_writing_journal
@click.option(
    "--batch", type=click.IntRange(1, 50_000), default=5_000, metavar="N", help="events of a transaction [5000]"
)
@click.option(
    "--linger",
    type=options.DURATION,
    default="100ms",
    metavar="DURATION",
    help="the wait after less than half a batch [100ms]",
)
@click.option(
    "--bodies",
    type=click.Choice(["all", "none"]),
    help="keep the bodies of jobs, or none [as this journal did; at first all]",
)
@click.option(
    "--events",
    type=click.Choice(["all", "ends", "none"]),
    help="keep every event, or those of adds and ends, or none [as this journal did; at first all]",
)
@click.option("--keep-events", type=_Period(), default="30d", metavar="DURATION", help="for how long [30d]")
@click.option(
    "--keep-jobs", type=_Period(), default="90d", metavar="DURATION", help="for how long after their end [90d]"
)
@click.option("--keep-minutes", type=_Period(), default="730d", metavar="DURATION", help="sums, for how long [730d]")
@click.option("--metrics-port", type=click.IntRange(1, 65_535), metavar="PORT", help="answer scrapes there")
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="where scrapes are answered; 0.0.0.0 for those from other machines [127.0.0.1]",
)
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), default="auto", help="of the logs [auto]")
def run_command(config: str | None, **given: Any) -> None:
    """Write what was recorded to the journal, each event once and in order, until SIGTERM or Ctrl-C.

    Any number of these may run beside each other: they share the shards. Events must be on (`jobqueue journal on`).
    Exit code 1: what it had begun was not written within 10 s; 2: it could not begin.
    """
    warn_of_password(given["journal"], "--to")
    from jobqueue.cli.journal.draining import run  # noqa: PLC0415 - loading SQLAlchemy takes 0.3 s

    sys.exit(run(config, given))


@click.command("walk", short_help="Read all records into the journal")
@_writing_journal
def walk_command(config: str | None, **given: Any) -> None:
    """Read all records of jobs into the journal, for what no event has recorded.

    A running `journal run` does it, else this does. Exit code 1: it did not finish; 2: it could not begin.
    """
    warn_of_password(given["journal"], "--to")
    from jobqueue.cli.journal.draining import walk  # noqa: PLC0415 - as above

    sys.exit(walk(config, given))


@click.command("check", short_help="Compare the journal with the totals of Redis")
@_writing_journal
def check_command(config: str | None, **given: Any) -> None:
    """Compare the numbers of jobs created, finished and deleted, by topic, with those that Redis has counted, and list
    the gaps. Exit code 1: they differ, or events are missing; 2: it could not begin.
    """
    warn_of_password(given["journal"], "--to")
    from jobqueue.cli.journal.checking import check  # noqa: PLC0415 - as above

    sys.exit(check(config, given))
