"""emit: turns the rows of a table, a file or a query into jobs, once each; with --watermark only the new ones."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import command_line, increment, inputs, jobs
from pyspark_jobqueue.pipelines.parts.command_line import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def parser() -> argparse.ArgumentParser:
    """All flags of emit."""
    made = command_line.parser("emit", __doc__ or "")
    inputs.add_flags(made)
    jobs.add_flags(made)
    group = made.add_argument_group("incremental")
    group.add_argument("--watermark", metavar="COLUMN", help="only rows above the highest value of the last run")
    group.add_argument("--state", metavar="FILE", help="the file that keeps that value")
    group = jobs.add_write_flags(made)
    group.add_argument(
        "--if-exists",
        choices=["keep", "renew", "replace", "reject", "later", "sooner"],
        help="what to do if an id exists [keep]",
    )
    group.add_argument("--on-error", metavar="fail|skip|FOLDER", help="what to do with refused rows [fail]")
    group.add_argument("--rate", type=int, metavar="N", help="rows per second in total, sent by one task [no limit]")
    group.add_argument("--dry-run", action="store_true", help="check all rows, send none, leave the state as it is")
    return made


def emit(arguments: argparse.Namespace) -> Report:
    """Run once. The report contains the writer's totals, and the watermark that the run reached."""
    inputs.check(arguments)
    jobs.check(arguments)
    jobs.check_rate(arguments.rate)
    if (arguments.watermark is None) != (arguments.state is None):
        raise BadOption("--watermark and --state require each other")
    report = Report("emit")
    with increment.lock(arguments.state) if arguments.state else contextlib.nullcontext():
        before = (
            increment.load_watermark(arguments.state, arguments.topic, arguments.watermark) if arguments.state else None
        )
        spark = command_line.begin(arguments)
        _run(spark, arguments, before, report)
    return report


def _run(
    spark: SparkSession, arguments: argparse.Namespace, before: increment.Watermark | None, report: Report
) -> None:
    rows = inputs.read(spark, arguments)
    frame = jobs.frame_of(rows, arguments)  # reports its errors before any data is read
    reached = None
    if arguments.watermark:
        found = increment.since(rows, jobs.id_of(rows, arguments), arguments.topic, arguments.watermark, before)
        frame, reached = jobs.frame_of(found.rows, arguments), found.mark
    _write(frame, arguments, report)
    if arguments.watermark:
        _note(found, report)
        if reached and reached != before and not arguments.dry_run:
            increment.save_watermark(arguments.state, reached)


def _write(frame: DataFrame, arguments: argparse.Namespace, report: Report) -> None:
    figures = jobs.write(frame, _options(arguments), arguments.rate)
    figures.pop("gone", None)  # emit sends no deletes
    report.note(topic=arguments.topic, **({"dry_run": True} if arguments.dry_run else {}), **figures)


def _note(found: increment.Increment, report: Report) -> None:
    report.note(watermark=found.mark.value if found.mark else None)
    if found.without_mark:
        report.note(without_watermark=found.without_mark)
        print(f"warning: {found.without_mark:,} rows have no watermark and were not sent", file=sys.stderr)
    if found.too_many_ids:
        report.note(at_watermark=f"more than {increment.MOST_IDS:,} rows: the next run sends them again")


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    given = {"ifExists": arguments.if_exists, "onError": arguments.on_error}
    return {
        **command_line.connection(arguments),
        **jobs.options(arguments),
        **jobs.write_options(arguments),
        **{name: text for name, text in given.items() if text is not None},
        "dryRun": str(arguments.dry_run).lower(),
    }


if __name__ == "__main__":
    command_line.run(emit, parser().parse_args())
