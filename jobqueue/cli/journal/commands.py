"""The command group `jobqueue journal` and its commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from jobqueue.access.secret_values import read_secret
from jobqueue.cli import options
from jobqueue.cli.journal.arguments import Source, reaching_redis, warn_of_password
from jobqueue.cli.journal.export import export_command
from jobqueue.errors import SettingsError
from jobqueue.journal.url import SCHEMES, Refused, address, need


class _CannotBegin(click.ClickException):
    """Nothing was done."""

    exit_code = 2


@click.command("ddl", short_help="Print the statements that make a journal's tables")
@click.option("--for", "scheme", type=click.Choice(SCHEMES), help="for which database [that of JOBQUEUE_JOURNAL]")
def ddl_command(scheme: str | None) -> None:
    """Print all statements that make the tables, partitions and views of a new journal.

    They are for databases in which programs may not make tables; elsewhere `jobqueue journal run` makes them itself.
    There are partitions for the next two days: whoever makes the tables then makes those of later days, too.
    """
    url = os.environ.get("JOBQUEUE_JOURNAL", "")
    if scheme is None and not url:
        raise click.UsageError("name the database by --for or JOBQUEUE_JOURNAL")
    try:
        need()
        scheme = scheme or address(url).scheme
    except Refused as error:
        raise _CannotBegin(str(error)) from None
    from jobqueue.journal.schema import ddl  # noqa: PLC0415 - loading SQLAlchemy takes 0.2 s

    for statement in ddl(scheme):
        click.echo(f"{statement};\n")


@click.command("migrate", short_help="Bring the tables of a journal up to date")
@click.option("--to", "url", metavar="URL", envvar="JOBQUEUE_JOURNAL", help="the journal [JOBQUEUE_JOURNAL]")
@click.option("--to-file", metavar="FILE", help="file with the URL, instead of --to")
@click.pass_context
def migrate_command(context: click.Context, url: str | None, to_file: str | None) -> None:
    """Bring the tables of a journal up to date, which an older version of jobqueue has made.

    Stop those who write and read the journal first, and make a backup. Exit code 2: nothing was changed.
    """
    from_line = context.get_parameter_source("url") is ParameterSource.COMMANDLINE
    warn_of_password(url if from_line else None, "--to")
    if to_file is not None and from_line:
        raise click.UsageError("--to and --to-file exclude each other")
    try:
        url = read_secret(to_file, "--to-file") if to_file is not None else url
        if not url:
            raise click.UsageError("name the journal by --to, --to-file or JOBQUEUE_JOURNAL")
        before, after = _migrate(url)
    except (Refused, SettingsError) as error:
        raise _CannotBegin(str(error)) from None
    click.echo("the journal is up to date" if before == after else f"the journal is of revision {after} now")


def _migrate(url: str) -> tuple[str, str]:
    import asyncio  # noqa: PLC0415 - as above

    address(url)  # reports a missing library before that is imported
    from jobqueue.journal.database import migrate  # noqa: PLC0415
    from jobqueue.journal.store import Away  # noqa: PLC0415

    try:
        return asyncio.run(migrate(url))
    except Away as error:
        raise Refused(f"the journal cannot be reached: {error}") from None


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
    """Add the options that say which journal to write."""
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


@click.group("journal", short_help="Keep the history of all jobs in SQL")
def journal_group() -> None:
    """Keep the history of all jobs in SQL: every state change, in order."""


@journal_group.command("on", short_help="Record every state change")
@click.option(
    "--entries",
    type=click.IntRange(1_000, 1_000_000_000),
    default=1_000_000,
    metavar="N",
    help="the most entries that wait for a journal in each shard; the oldest are cut off [1000000]",
)
@click.option("--touches", is_flag=True, help="record touches, too")
@reaching_redis
def on_command(entries: int, touches: bool, config: str | None, **flags: Any) -> None:
    """Record every state change for a journal, from now on.

    All running instances must be of a version that knows events. May be repeated, with other numbers. Exit code 1: a
    shard did not answer; 2: nothing could begin.
    """
    from jobqueue.cli.journal.switching import switch_on  # noqa: PLC0415 - as below

    sys.exit(switch_on(flags, config, entries, touches=touches))


@journal_group.command("off", short_help="Stop recording")
@click.option("--drop", is_flag=True, help="empty the streams, too, if a journal has all that is in them")
@reaching_redis
def off_command(drop: bool, config: str | None, **flags: Any) -> None:
    """Stop recording. What was recorded stays until a journal has it. May be repeated.

    Exit code 1: a shard did not answer, or its stream was not emptied; 2: nothing could begin.
    """
    from jobqueue.cli.journal.switching import switch_off  # noqa: PLC0415 - loading the service takes 0.3 s

    sys.exit(switch_off(flags, config, drop=drop))


for _command in (run_command, walk_command, check_command, export_command, ddl_command, migrate_command):
    journal_group.add_command(_command)
