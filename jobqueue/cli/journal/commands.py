"""`jobqueue journal` and its commands, as they are typed."""

from __future__ import annotations

import sys
from typing import Any

import click

from jobqueue.cli.journal.export import export_command
from jobqueue.cli.journal.redis_options import reaching_redis
from jobqueue.cli.journal.run import check_command, run_command, walk_command
from jobqueue.cli.journal.schema import ddl_command, migrate_command


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
