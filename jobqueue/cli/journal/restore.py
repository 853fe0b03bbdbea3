"""The command `jobqueue restore` and its options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from jobqueue.cli import options, times
from jobqueue.cli.journal.arguments import Id, Pattern, Source, reaching_redis, warn_of_password

_STATES = ("delayed", "ready", "reserved")
_FAR_S = 1_000_000  # the longest spread: more than a week
# The options that say which jobs come back, and how; --resume, --forgotten and --tokens go without them.
_CHOICES = {
    **{"ids": "ID", "topic": "--topic", "every": "--all", "states": "--state", "dead": "--dead"},
    **{"overdue": "--overdue", "spread": "--spread", "as_of": "--as-of"},
}


class _States(click.ParamType[list[str]]):
    name = "states"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        states = list(value.split(",")) if isinstance(value, str) else list(value)
        if unknown := [state for state in states if state not in _STATES]:
            self.fail(f"{unknown[0]!r} is none of {', '.join(_STATES)}; --dead is for dead letters", param, ctx)
        return states


def _choosing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which jobs come back, and how."""
    for option in (
        click.option("--as-of", type=options.Typed("time", times.past), metavar="TIME", help="as they were then"),
        click.option(
            "--spread",
            type=options.DURATION,
            metavar="DURATION",
            help="let overdue jobs become due over this time, evenly",
        ),
        click.option(
            "--overdue",
            type=click.Choice(["run", "skip", "dead"]),
            help="jobs whose time has passed are ready at once, stay away, or become dead letters [run]",
        ),
        click.option("--dead", is_flag=True, help="bring back dead letters, too"),
        click.option(
            "--state",
            "states",
            type=_States(),
            metavar="STATES",
            help="only jobs in these states: delayed, ready, reserved [all three]",
        ),
        click.option("--all", "every", is_flag=True, help="bring back the jobs and schedules of all topics"),
        click.option(
            "--topic", type=Pattern(), metavar="PATTERN", help="bring back the jobs and schedules of these topics"
        ),
    ):
        command = option(command)
    return command


@click.command("restore", short_help="Bring back jobs that Redis has lost, from the journal")
@click.argument("ids", nargs=-1, type=Id(), metavar="[ID]...")
@_choosing
@click.option("--ended", is_flag=True, help="bring back jobs that ended as new ones, by their ids")
@click.option("--forgotten", is_flag=True, help="show what the last failovers lost")
@click.option("--tokens", is_flag=True, help="bring back the tokens that Redis has lost, and no jobs")
@click.option("--apply", "applies", is_flag=True, help="with --forgotten: put and end these jobs again")
@click.option("--resume", is_flag=True, help="go on with the last run, where it stopped")
@click.option("--dry-run", "dry", is_flag=True, help="show what would be done")
@click.option(
    "--stale", is_flag=True, help="do not wait for the journal: what was finished and is not there yet runs again"
)
@click.option(
    "--rate", type=click.IntRange(1, 1_000_000), default=2_000, metavar="N", help="jobs a second at most [2000]"
)
@click.option("--from", "journal", metavar="URL", help="the journal; also JOBQUEUE_JOURNAL or the setting journal")
@click.option("--from-file", "journal_file", metavar="FILE", help="file with its URL, instead of --from")
@click.option("--source", type=Source(), metavar="NAME", help="this namespace on its Redis, in the journal [namespace]")
@reaching_redis
@click.option("--json", "as_json", is_flag=True, help="print what was done as JSON, with the ids of what was left")
def restore_command(config: str | None, **given: Any) -> None:
    """Bring back jobs and schedules that live by the journal and that Redis does not know. While the service runs, and
    as often as you like: an id that Redis knows keeps what it has, and what was finished is not run again.

    Name jobs by their ids or --topic, or say --all. Tokens come back only with --tokens, which lists them. Exit code 1:
    some were left; 2: it could not begin.
    """
    _check(given)
    from jobqueue.cli.journal.restoring import restore  # noqa: PLC0415 - loading SQLAlchemy takes 0.3 s

    warn_of_password(given["journal"], "--from")
    sys.exit(restore(config, given))


def _check(given: Mapping[str, Any]) -> None:
    """Raise UsageError for options that exclude each other."""
    chosen = {name: option for name, option in _CHOICES.items() if given[name] not in (None, False, ())}
    whole = [option for name, option in chosen.items() if name in ("ids", "topic", "every")]
    for mode in ("resume", "forgotten", "tokens"):
        if given[mode]:
            whole.append(f"--{mode}")
            if chosen:
                _refuse(f"--{mode} goes without {next(iter(chosen.values()))}")
    if len(whole) != 1:
        which = "say which jobs: ID, --topic or --all; or --tokens"
        _refuse(f"{whole[0]} and {whole[1]} exclude each other" if whole else which)
    if given["ended"]:
        others = [option for name, option in chosen.items() if name != "ids"]
        if not given["ids"] or others:
            _refuse(f"--ended goes with ids, and without {', '.join(others) or 'other choices'}")
    if given["ids"] and (given["states"] or given["dead"]):
        _refuse("--state and --dead go with --topic and --all: jobs that are named come back in any state")
    if given["applies"] and not given["forgotten"]:
        _refuse("--apply goes with --forgotten")
    if given["spread"] is not None and not (given["overdue"] in (None, "run") and 0 < given["spread"] <= _FAR_S):
        _refuse("--spread is a time of up to 11 days, for overdue jobs that run")
    if given["dry"] and (given["resume"] or given["forgotten"]):
        _refuse("--dry-run goes without --resume and --forgotten, which does nothing without --apply")


def _refuse(why: str) -> None:
    raise click.UsageError(why)
