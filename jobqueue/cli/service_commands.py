"""The commands that ask a running service: one for each command of the protocol."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Any

import click

from jobqueue.cli import access, options, times
from jobqueue.schema.checks import KEEPS_BODY
from jobqueue.schema.commands import COMMANDS

# The options of a command that are not fields.
_OWN: dict[str, list[click.Option]] = {
    "add": [click.Option(["--text"], is_flag=True, help="send BODY as a string, not as JSON")],
    "schedule": [click.Option(["--text"], is_flag=True, help="send the body as a string, not as JSON")],
    "update": [click.Option(["--text"], is_flag=True, help="send the body as a string, not as JSON")],
    "kick": [
        click.Option(["--all"], is_flag=True, help="all dead letters of the topic"),
        click.Option(["--yes", "-y"], is_flag=True, help="do not ask for confirmation"),
    ],
    "purge": [click.Option(["--yes", "-y"], is_flag=True, help="do not ask for confirmation")],
    "peek": [click.Option(["--all"], is_flag=True, help="show all jobs instead of 20")],
    "find": [click.Option(["--all"], is_flag=True, help="show all jobs instead of 20")],
    "topics": [click.Option(["--all"], is_flag=True, help="show empty topics too")],
    "actions": [click.Option(["--all"], is_flag=True, help="show all instead of 20")],
    "stats": [
        click.Option(
            ["--watch"],
            type=options.DURATION,
            is_flag=False,
            flag_value=2.0,
            metavar="[S]",
            help="look again every S seconds [2] until Ctrl-C; goes after the topic",
        )
    ],
}
# Help beyond the one line of `params`.
_MORE = {
    "add": "BODY is JSON. If it is missing or -, it is read from standard input. With --if-exists later or sooner, it "
    "may be left out: a job that is there keeps its own.\n\n"
    """For example: jobqueue add example-call-back '{"phone": "…"}' --at 'tomorrow 09:00'""",
    "schedule": "If --body is missing or -, it is read from standard input.\n\n"
    """For example: jobqueue schedule nightly --topic example-report --cron '30 2 * * *' --zone Europe/Berlin """
    "--body '{}'",
    "unschedule": "The jobs that it has added stay.",
    "schedules": "The one that comes next is on top. In PATTERN, * stands for any characters and ? for one; "
    "without either, it is how names begin. As JSON: one line per page.",
    "get": "As JSON: one line per job.",
    "pop": "Several topics are tried in order. Exit code 4: nothing is ready.",
    "update": "--body - reads standard input.",
    "kick": "Takes an ID, or --topic with --count or --all.",
    "peek": "Shows 20 jobs; --count or --all shows more. As JSON: one line per page.",
    "find": "Shows 20 jobs; --count or --all shows more. Without --topic it searches all jobs, and shows up to 1,000 "
    "ids. `get` finds a job by its whole ID at once. As JSON: one line per page.",
    "topics": "The topic whose jobs have waited longest comes first. In PATTERN, * stands for any characters and ? for "
    "one; without either, it is how names begin. As JSON: one line per page.",
    "actions": "The newest comes first: kick, run, purge, pause, resume, restore, changes of tokens and of settings; "
    "where a person acts, also delete, update, bury, release, schedule and unschedule. --since takes unix seconds. As "
    "JSON: one line per page.",
    "figures": "Adds, deliveries, finishes and deaths, and how long after their due time jobs were ready and were "
    "delivered: the median and what 99 of 100 jobs did not exceed. --since and --until also take how long ago, such as "
    "2h; --step is a whole number of minutes, such as 5m.",
    "workers": "jobs: those that a worker has in hand. parked: it is waiting for a job.",
    "settings": "A secret is set or not set. Those that are not defaults stand out.",
    "health": "What `check` finds, seen by the service itself. Exit code 1: something is bad.",
    "instances": "timers: how many it holds, and of which shards. If versions differ, they stand out.",
    "purge": "Asks for confirmation. --state deletes only the jobs in one state.",
}

# What may be typed for the placeholders of options.
_TYPED = {"DURATION": f"DURATION: {times.DURATIONS}.", "TIME": f"TIME: {times.TIMES}."}


def commands() -> list[click.Command]:
    """A click command for each command of the protocol, except `token` and `operation`, which are groups (in the
    folders of the same names), and `explain`, which may also read a journal (journal/explain.py)."""
    return [_command(name) for name in COMMANDS if name not in ("token", "operation", "explain")]


def _command(name: str) -> click.Command:
    struct = COMMANDS[name].kind
    summary = struct.__doc__ or ""
    parameters = options.parameters(name, struct)
    return options.Command(
        name,
        params=[*parameters, *_OWN.get(name, ()), *_common()],
        callback=partial(_talk, name),
        help=f"{summary}\n\n{_MORE[name]}" if name in _MORE else summary,
        short_help=summary.partition(".")[0],
        epilog="\n\n".join(
            words for metavar, words in _TYPED.items() if metavar in {each.metavar for each in parameters}
        ),
    )


def _common() -> list[click.Option]:
    return [
        *access.of_service(),
        click.Option(["--json", "as_json"], is_flag=True, help="print JSON on a terminal too"),
    ]


def _talk(name: str, /, as_json: bool, text: bool = False, **given: Any) -> None:
    # Loading aiohttp takes 0.25 s: `jobqueue --help` and a wrong option do not wait for it.
    from jobqueue.cli import ask, bulk, watch  # noqa: PLC0415
    from jobqueue.cli.client import Client  # noqa: PLC0415
    from jobqueue.cli.operation import talks as operations  # noqa: PLC0415
    from jobqueue.cli.output import Output  # noqa: PLC0415

    url, files = access.asked(given)
    client = Client(url, access.shown(url, files))
    extras = ask.Extras(*(given.pop(wish, None) for wish in ask.Extras._fields))
    _check_count(given.get("count"), extras.all)
    if name in ("add", "schedule") and given["body"] is None and given.get("if_exists") not in KEEPS_BODY:
        given["body"] = _piped()
    fields = options.fields_of(given, text=text)
    talks: dict[str, ask.Talk] = {
        "get": ask.get,
        "pop": ask.pop,
        "peek": partial(ask.jobs, "peek"),
        "find": partial(ask.jobs, "find") if "topic" in fields else operations.find,
        "topics": ask.topics,
        "schedules": ask.schedules,
        "actions": ask.actions,
        "kick": bulk.kick,
        "purge": bulk.purge,
        "stats": watch.stats,
        "health": ask.health,
    }
    talk = talks.get(name) or ask.once(name)
    try:
        code = asyncio.run(ask.hold(talk, client, fields, extras, Output(as_json)))
    except KeyboardInterrupt:
        if extras.watch is None:
            raise
        code = ask.DONE  # only Ctrl-C ends a watch
    sys.exit(code)


def _check_count(count: int | None, everything: bool | None) -> None:
    """Refuse a count that the service could not check, because several requests share it."""
    if count is not None and everything:
        raise click.UsageError("--all and --count exclude each other")
    if count is not None and count < 1:
        raise click.UsageError("--count must be at least 1")


def _piped() -> str:
    """Returns `-`, which stands for a body from a pipe. Raises UsageError on a terminal, where the program would wait
    for input without saying so."""
    if sys.stdin and sys.stdin.isatty():
        raise click.UsageError("BODY is missing: give JSON, or - to type it here")
    return "-"
