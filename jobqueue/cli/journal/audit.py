"""The command group `jobqueue audit`: questions to a journal about many jobs."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from jobqueue.cli import options, times
from jobqueue.cli.journal import arguments
from jobqueue.cli.journal.arguments import Pattern
from jobqueue.schema import fields

_PAST = options.Typed("time", times.past)
_DAY_S = 86_400.0
_TIMES = ("topic", "hour", "day")


@click.group("audit", short_help="Ask the journal about many jobs")
def audit_group() -> None:
    """Ask the journal about many jobs: which were late, waited, died, who deleted them.

    The journal is that of --from, JOBQUEUE_JOURNAL or the settings; no service is asked.
    """


# For each question: its help text, what it can be grouped by (the first is the default), and whether it has --over.
_QUESTIONS: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "late": ("First deliveries that came late, at their workers. --over is a bound of the histogram.", _TIMES, True),
    "waited": ("Deliveries of jobs that had been ready for long.", (*_TIMES, "worker"), True),
    "dead": ("Jobs that died, by cause and reason.", (*_TIMES, "worker"), False),
    "deleted": ("Jobs that were deleted, by whom and how.", ("actor", *_TIMES), False),
    "kicked": ("Dead letters that were kicked, by whom.", ("actor", *_TIMES), False),
    "expired-leases": ("Leases that ended without a finish, by worker.", ("worker", *_TIMES), False),
    "slow": ("How long the work took: p50, p95, p99, exact.", (*_TIMES, "worker"), False),
    "volume": ("How many jobs were added, delivered, finished, and so on.", _TIMES, False),
    "gaps": ("What the journal does not have, and what Redis has forgotten.", (), False),
}


def _command(name: str, summary: str, keys: tuple[str, ...], takes_over: bool) -> click.Command:
    def answer(config: str | None, since: float | None, until: float | None, **given: Any) -> None:
        from jobqueue.cli.journal.audited import audit  # noqa: PLC0415 - loading SQLAlchemy takes 0.3 s

        now = time.time()
        until = now if until is None else until
        since = until - _DAY_S if since is None else since
        if since >= until:
            raise click.UsageError("--since must be before --until")
        if given["as_json"] and given["as_csv"]:
            raise click.UsageError("--json and --csv exclude each other")
        if given.get("over") is not None and not 0 <= given["over"] <= fields.TEN_YEARS_S:
            raise click.UsageError("--over must be from 0 to ten years")
        sys.exit(audit(name, since, until, config, given))

    made = click.Command(name, callback=answer, help=f"{summary}\n\nTimes in the answer are UTC.", short_help=summary)
    made.params += [
        *([_over(name)] if takes_over else []),
        *(
            [
                click.Option(["--topic"], type=Pattern(), metavar="PATTERN", help="only these topics: * any, ? one"),
                click.Option(["--by"], type=click.Choice(keys), default=keys[0], help=f"a row for each [{keys[0]}]"),
            ]
            if keys
            else []
        ),
        click.Option(["--since"], type=_PAST, metavar="TIME", help="from then on; 7d: seven days ago [a day before]"),
        click.Option(["--until"], type=_PAST, metavar="TIME", help="up to then [now]"),
        click.Option(["--config"], metavar="FILE", help="settings file (TOML) that names the journal"),
        *arguments.parameters("the journal; also JOBQUEUE_JOURNAL or the setting journal"),
        click.Option(["--json", "as_json"], is_flag=True, help="print JSON on a terminal too"),
        click.Option(["--csv", "as_csv"], is_flag=True, help="print CSV"),
    ]
    return made


def _over(name: str) -> click.Option:
    what = "late" if name == "late" else "ready"
    return click.Option(
        ["--over"], type=options.DURATION, default=1.0, metavar="DURATION", help=f"{what} for longer than this [1]"
    )


for _name, _question in _QUESTIONS.items():
    audit_group.add_command(_command(_name, *_question))
