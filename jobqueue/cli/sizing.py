"""`jobqueue sizing`: what a load needs."""

from __future__ import annotations

import click
import orjson

from jobqueue.cli.needs import Load, needs
from jobqueue.cli.options import DURATION


@click.command("sizing", short_help="Say what memory, servers and cores a load needs.")
@click.option("--jobs", type=click.IntRange(0), metavar="N", help="delayed at once, if more than rate times delay")
@click.option(
    "--rate", type=click.FloatRange(0), metavar="N", help="jobs a second, at the peak [jobs divided by delay]"
)
@click.option("--delay", type=DURATION, metavar="DURATION", help="of a job, on average")
@click.option(
    "--body-bytes",
    type=click.IntRange(0),
    metavar="N",
    default=250,
    help="of a job's body, headers and tags [250]",
)
@click.option(
    "--retention", type=DURATION, default="60s", metavar="DURATION", help="for which an ended job stays [60s]"
)
@click.option("--json", "as_json", is_flag=True, help="print it as JSON")
def sizing_command(
    jobs: int | None,
    body_bytes: int,
    rate: float | None,
    delay: float | None,
    retention: float,
    as_json: bool,
) -> None:
    """Say what memory, servers of Redis, shards and cores a load needs at its peak.

    Two of --jobs, --rate and --delay are needed. The figures are of slow cores, and of jobs whose ids have 20
    characters; docs/sizing.md has the formula.
    """
    from jobqueue.cli.output import Output  # noqa: PLC0415 - takes time that `--help` does not wait for

    output = Output(as_json)
    most, a_second = _load(jobs, rate, delay)
    try:
        needed = needs(Load(most, body_bytes, a_second, retention))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if output.as_json:
        click.echo(orjson.dumps(needed))
    else:
        output.table("sizing", needed)


def _load(jobs: int | None, rate: float | None, delay: float | None) -> tuple[int, float]:
    """Jobs delayed at once, and jobs a second. Raises UsageError."""
    if jobs is not None and delay and rate is None:
        return jobs, jobs / delay
    if rate is None or (jobs is None and delay is None):
        raise click.UsageError("two of --jobs, --rate and --delay (above 0) are needed")
    return max(jobs or 0, round(rate * (delay or 0))), rate
