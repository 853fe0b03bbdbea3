"""A task's part of a write: its rows become commands, which go to the service, and their answers are counted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import orjson

from pyspark_jobqueue.connector.columns import Columns
from pyspark_jobqueue.connector.commands import Commands, Refusal, Row
from pyspark_jobqueue.connector.ordered_requests import OrderedRequests
from pyspark_jobqueue.connector.progress import Progress
from pyspark_jobqueue.connector.rate_limit import RateLimit
from pyspark_jobqueue.connector.refused_rows import RefusedRows
from pyspark_jobqueue.connector.row_batches import Batch
from pyspark_jobqueue.connector.service import Answer, Service
from pyspark_jobqueue.connector.write_options import WriteOptions
from pyspark_jobqueue.connector.write_totals import WriteTotals


class WriteTask:
    """Of one partition; `run` names the write."""

    def __init__(self, columns: Columns, options: WriteOptions, run: str, partition: int) -> None:
        self._commands = Commands(columns, options)
        self._dry_run = options.dry_run
        self._refusals = RefusedRows(options.on_error, columns, run, partition)
        self._service = Service(options.target, partition)
        pace = RateLimit(options.rows_per_second)
        self._lanes = OrderedRequests(self._service, options.in_flight, options.batch_size, pace, self._settle)
        self._sum = WriteTotals()
        self._progress = Progress(partition)

    def send(self, batches: Iterable[Batch]) -> WriteTotals:
        """Send all rows; returns when each is answered for. Raises Refused and Unreachable."""
        try:
            for batch in batches:
                for row in self._commands.of(batch):
                    self._take(row)
            self._lanes.finish()
            self._refusals.keep()
        except BaseException:
            self._lanes.abandon()
            self._refusals.drop()
            raise
        self._sum.retries = self._service.retries
        self._sum.ended = time.time()
        return self._sum

    def _take(self, row: Row | Refusal) -> None:
        self._sum.rows += 1
        if isinstance(row, Refusal):
            self._refuse(row)
        elif not self._dry_run:
            self._lanes.put(row)

    def _settle(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        self._progress.add(len(rows))
        for row, answer in zip(rows, answers, strict=True):
            if not answer["success"]:
                self._settle_failure(row, answer)
            elif _exists(answer):
                self._sum.existing += 1
            else:
                self._sum.accepted += 1

    def _settle_failure(self, row: Row, answer: Answer) -> None:
        command = orjson.loads(row.command)
        action = command["command"]
        # A job that is finished is found as long as it is remembered, and not after: to whom cancels it that is one.
        if action == "delete" and answer["code"] in ("NOT_FOUND", "WRONG_STATE"):
            self._sum.gone += 1
        else:
            self._refuse(Refusal(answer, action, row.id, command.get("topic"), row.batch, row.number))

    def _refuse(self, refusal: Refusal) -> None:
        self._sum.refused += 1
        self._refusals.take(refusal)


def _exists(answer: Answer) -> bool:
    """Whether an add found its job; one to a virtual topic has several."""
    return all(job.get("result") == "existing" for job in answer.get("jobs", [answer]))
