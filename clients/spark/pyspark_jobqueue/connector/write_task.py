"""A task of a write: turns its rows into commands, sends them to the service, and counts the answers.

The driver adds up the totals of the tasks. A long-running task prints its progress.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_jobqueue.connector.columns import Columns
from pyspark_jobqueue.connector.commands import Commands, Refusal, Row
from pyspark_jobqueue.connector.ordered_requests import OrderedRequests, RateLimit
from pyspark_jobqueue.connector.refused_rows import RefusedRows
from pyspark_jobqueue.connector.row_batches import Batch
from pyspark_jobqueue.connector.service import Answer, Service
from pyspark_jobqueue.connector.write_options import WriteOptions


@dataclass
class WriteTotals(WriterCommitMessage):  # type: ignore[misc,unused-ignore]  # pyspark has no types for it
    """The totals of one task, or of the whole write. Pickled to the driver."""

    rows: int = 0
    accepted: int = 0
    existing: int = 0
    cancelled: int = 0
    dead: int = 0
    gone: int = 0
    refused: int = 0
    retries: int = 0
    began: float = field(default_factory=time.time)
    ended: float = 0.0

    @property
    def seconds(self) -> float:
        return max(0.0, self.ended - self.began)

    def figures(self) -> Mapping[str, Any]:
        """The numbers for a report."""
        counts = {name: getattr(self, name) for name in COUNTS}
        speed = round(self.rows / self.seconds) if self.seconds else None
        return {**counts, "seconds": round(self.seconds, 3), "rows_per_second": speed}

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows: {self.accepted:,} accepted, {self.existing:,} existing, "
            f"{self.cancelled:,} cancelled, {self.dead:,} dead, {self.gone:,} gone, {self.refused:,} refused, "
            f"{self.retries:,} retries in {self.seconds:.1f} s"
        )


COUNTS = ("rows", "accepted", "existing", "cancelled", "dead", "gone", "refused", "retries")


def total(sums: Sequence[Any]) -> WriteTotals:
    """The sum over the tasks that finished. The entries of other tasks are None."""
    finished = [each for each in sums if isinstance(each, WriteTotals)]
    made = WriteTotals(**{name: sum(getattr(each, name) for each in finished) for name in COUNTS})
    made.began = min((each.began for each in finished), default=made.began)
    made.ended = max((each.ended for each in finished), default=made.began)
    return made


_EVERY_S = 10.0


class Progress:
    """Prints a line to standard error every ten seconds, which reaches the terminal with a local Spark, otherwise the
    executor's log. (A check for a terminal would not work: Spark redirects the output of every task.)"""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._rows = self._printed_rows = 0
        self._printed_at = time.monotonic()

    def add(self, rows: int) -> None:
        """Count rows that the service has answered."""
        self._rows += rows
        passed = time.monotonic() - self._printed_at
        if passed >= _EVERY_S:
            speed = (self._rows - self._printed_rows) / passed
            print(f"jobqueue: task {self._partition}: {self._rows:,} rows, {speed:,.0f} rows/s", file=sys.stderr)
            sys.stderr.flush()
            self._printed_at, self._printed_rows = time.monotonic(), self._rows


class WriteTask:
    """Writes one partition; `run` names the write."""

    def __init__(self, columns: Columns, options: WriteOptions, run: str, partition: int) -> None:
        self._commands = Commands(columns, options)
        self._dry_run = options.dry_run
        self._refusals = RefusedRows(options.on_error, columns, run, partition)
        self._service = Service(options.target, partition)
        rate_limit = RateLimit(options.rows_per_second)
        self._requests = OrderedRequests(self._service, options.in_flight, options.batch_size, rate_limit, self._settle)
        self._totals = WriteTotals()
        self._progress = Progress(partition)

    def send(self, batches: Iterable[Batch]) -> WriteTotals:
        """Send all rows; return once every one of them is answered. Raises Refused and Unreachable."""
        try:
            for batch in batches:
                for row in self._commands.of(batch):
                    self._take(row)
            self._requests.finish()
            self._refusals.keep()
        except BaseException:
            self._requests.abandon()
            self._refusals.drop()
            raise
        self._totals.retries = self._service.retries
        self._totals.ended = time.time()
        return self._totals

    def _take(self, row: Row | Refusal) -> None:
        self._totals.rows += 1
        if isinstance(row, Refusal):
            self._refuse(row)
        elif not self._dry_run:
            self._requests.put(row)

    def _settle(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        self._progress.add(len(rows))
        for row, answer in zip(rows, answers, strict=True):
            if not answer["success"]:
                self._settle_failure(row, answer)
            elif _exists(answer):
                self._totals.existing += 1
            else:
                self._totals.accepted += 1

    def _settle_failure(self, row: Row, answer: Answer) -> None:
        command = orjson.loads(row.command)
        action = command["command"]
        # A delete of a finished job is refused: with WRONG_STATE while the job is remembered, later with NOT_FOUND. For
        # the caller, the job is gone in both cases.
        if action == "delete" and answer["code"] in ("NOT_FOUND", "WRONG_STATE"):
            self._totals.gone += 1
        elif _found(command, answer) == "deleted":  # a repeated add must not revive the job
            self._totals.cancelled += 1
        elif _found(command, answer) == "dead":
            self._totals.dead += 1
        else:
            self._refuse(Refusal(answer, action, row.id, command.get("topic"), row.batch, row.number))

    def _refuse(self, refusal: Refusal) -> None:
        self._totals.refused += 1
        self._refusals.take(refusal)


def _exists(answer: Answer) -> bool:
    """True if an add created no job. The answer for a virtual topic has several jobs, some of which may be dead or
    cancelled; if all of them are, the add is refused instead."""
    return all(job.get("result") in ("existing", "dead", "cancelled") for job in answer.get("jobs", [answer]))


def _found(command: Mapping[str, Any], answer: Answer) -> str | None:
    """The state (dead or deleted) of the job because of which an add with ifExists=keep was refused, or None."""
    keeps = command["command"] == "add" and command.get("if_exists", "keep") == "keep"
    return answer.get("state") if keeps and answer["code"] == "ALREADY_EXISTS" else None
