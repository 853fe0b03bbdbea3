"""A task of a write: turns its rows into commands, sends them to the service, and counts the answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
        # A finished job is WRONG_STATE while it is remembered and NOT_FOUND later: to whoever cancels it, both mean
        # gone.
        if action == "delete" and answer["code"] in ("NOT_FOUND", "WRONG_STATE"):
            self._totals.gone += 1
        elif _found(command, answer) == "deleted":  # a repeat must not revive it
            self._totals.cancelled += 1
        elif _found(command, answer) == "dead":
            self._totals.dead += 1
        else:
            self._refuse(Refusal(answer, action, row.id, command.get("topic"), row.batch, row.number))

    def _refuse(self, refusal: Refusal) -> None:
        self._totals.refused += 1
        self._refusals.take(refusal)


def _exists(answer: Answer) -> bool:
    """Whether an add created nothing. An add to a virtual topic has several jobs, some of which may be dead or
    cancelled; if all of them are, it is refused."""
    return all(job.get("result") in ("existing", "dead", "cancelled") for job in answer.get("jobs", [answer]))


def _found(command: Mapping[str, Any], answer: Answer) -> str | None:
    """The state of the job for which an add that keeps existing jobs was refused: dead or deleted."""
    keeps = command["command"] == "add" and command.get("if_exists", "keep") == "keep"
    return answer.get("state") if keeps and answer["code"] == "ALREADY_EXISTS" else None
