"""Ordered requests: rows are batched so that no row overtakes another one of its id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType
from pyspark_jobqueue.connector import write_task
from pyspark_jobqueue.connector.commands import Row
from pyspark_jobqueue.connector.options import Target
from pyspark_jobqueue.connector.ordered_requests import OrderedRequests, RateLimit
from pyspark_jobqueue.connector.row_batches import ArrowBatch
from pyspark_jobqueue.connector.service import Answer, Service
from pyspark_jobqueue.connector.writer import Write
from pyspark_jobqueue.errors import Unreachable

from tests.spark.connector.breaking import Breaking
from tests.spark.serving import Serving

BATCH: Any = None


def row(serving: Serving, topic: str, job_id: str, fields: str = '"command":"add"', size: int = 0) -> Row:
    body = f',"topic":"{topic}","body":"{"x" * size}"' if "add" in fields else ""
    return Row(job_id, f'{{{fields},"id":"{job_id}"{body}}}'.encode(), BATCH, 0)


class Sent:
    """Sends rows to a service, and keeps the requests that it sent."""

    def __init__(self, serving: Serving, senders: int, most_rows: int) -> None:
        self.requests: list[list[str]] = []
        self.answers: list[tuple[str, Answer]] = []
        self.senders = OrderedRequests(
            Service(Target((serving.url,))), senders, most_rows, RateLimit(None), self._settle
        )

    def _settle(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        self.requests.append([row.id for row in rows])
        self.answers += zip((row.id for row in rows), answers, strict=True)

    def send(self, rows: Sequence[Row]) -> None:
        for each in rows:
            self.senders.put(each)
        self.senders.finish()


def test_few_rows_go_in_one_request(serving: Serving, topic: str) -> None:
    sent = Sent(serving, senders=8, most_rows=100)
    sent.send([row(serving, topic, f"few:{number}") for number in range(100)])
    assert list(map(len, sent.requests)) == [100]


def test_no_request_is_larger_than_asked_for_in_rows_and_bytes(serving: Serving, topic: str) -> None:
    sent = Sent(serving, senders=1, most_rows=50)
    sent.send([row(serving, topic, f"big:{number}", size=200_000 if number < 50 else 10) for number in range(130)])
    assert list(map(len, sent.requests)) == [20, 20, 50, 40]  # 20 of them make 4 MiB


def test_a_row_that_would_spoil_its_request_spoils_itself_only(serving: Serving, topic: str) -> None:
    deep = "[" * 1010 + "]" * 1010
    rows = [row(serving, topic, f"spoilt:{number}") for number in range(9)]
    rows[4] = Row("spoilt:4", f'{{"command":"add","topic":"{topic}","id":"deep","body":{deep}}}'.encode(), BATCH, 0)
    sent = Sent(serving, senders=1, most_rows=100)
    sent.send(rows)
    assert [answer.get("code") for _, answer in sent.answers] == [None] * 4 + ["BAD_JSON"] + [None] * 4


def test_rows_of_one_id_take_effect_in_their_order_and_stand_once_in_a_request(serving: Serving, topic: str) -> None:
    ids = [f"turn:{number}" for number in range(30)]
    steps = ['"command":"add"', '"command":"update","priority":7', '"command":"delete"', '"command":"get"']
    sent = Sent(serving, senders=3, most_rows=10)
    sent.send([row(serving, topic, each, step) for step in steps for each in ids])
    assert all(len(request) == len(set(request)) for request in sent.requests)
    for each in ids:
        reported = [answer for job_id, answer in sent.answers if job_id == each]
        assert [answer["success"] for answer in reported] == [True] * 4
        assert (reported[0]["result"], reported[3]["state"], reported[3]["priority"]) == ("created", "deleted", 7)


def test_one_id_in_very_many_rows(serving: Serving, topic: str) -> None:
    sent = Sent(serving, senders=4, most_rows=20)
    sent.send([row(serving, topic, "one", f'"command":"{"delete" if n % 2 else "add"}"') for n in range(100)])
    results = [answer.get("result") for _, answer in sent.answers]
    assert results[0] == "created"
    assert len(results) == 100


def test_an_abandoned_task_does_not_wait_for_retries() -> None:
    patient = Target(("http://127.0.0.1:9",), max_retries=1000, retry_wait_s=60)  # the discard port: nobody listens
    service = Service(patient)
    senders = OrderedRequests(service, 2, 1, RateLimit(None), lambda rows, answers: None)
    for number in range(2):  # a third one might block
        senders.put(Row(f"{number}", b"{}", BATCH, 0))
    senders.abandon()  # without it the test would hang for hours


def test_a_service_that_stays_away_is_told() -> None:
    service = Service(Target(("http://127.0.0.1:9",), max_retries=0))
    senders = OrderedRequests(service, 2, 10, RateLimit(None), lambda rows, answers: None)
    senders.put(Row("a", b"{}", BATCH, 0))
    with pytest.raises(Unreachable, match=r"gave up after 0 retries: http://127.0.0.1:9 does not answer"):
        senders.finish()
    senders.abandon()


def test_senders_that_fail_together_switch_together_to_the_url_that_answers(serving: Serving, topic: str) -> None:
    service = Service(Target(("http://127.0.0.1:9", serving.url), max_retries=1, retry_wait_s=0.01))
    settled: list[Answer] = []
    senders = OrderedRequests(service, 4, 1, RateLimit(None), lambda rows, answers: settled.extend(answers))
    for number in range(40):
        senders.put(row(serving, topic, f"together:{number}"))
    senders.finish()
    assert len(settled) == 40


def test_a_pace_is_even() -> None:
    pace = RateLimit(1000)
    assert pace.at_most(1000) == 100
    waits = [pace.wait_s(100) for _ in range(11)]
    assert waits[0] == 0
    assert waits[10] == pytest.approx(1, abs=0.1)
    assert RateLimit(3).at_most(1000) == 1
    assert RateLimit(None).at_most(1000) == 1000


def test_a_task_keeps_to_its_pace_and_no_lane_waits_for_the_answer_of_another(
    serving: Serving, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(write_task, "_EVERY_S", 0)
    ids = [f"{topic}:{number}" for number in range(8)]
    with Breaking(serving.url, ["hang"]) as proxy:
        options = {"url": proxy.url, "topic": topic, "inFlight": "2", "timeoutMs": "500", "rowsPerSecondPerTask": "20"}
        write = Write.plan(options, StructType([StructField("id", StringType())]))
        done = write.send(iter([ArrowBatch(pa.record_batch([pa.array(ids)], names=["id"]))]))
        asked = [[command["id"] for command in request.commands] for request in proxy.requests]
        times = [request.when for request in proxy.requests]
    assert (done.rows, done.accepted, done.retries) == (8, 8, 1)
    assert all(len(each) <= 2 for each in asked)  # a tenth of a second's worth
    assert times[2] - times[0] >= 0.1  # from the other sender; 0.2 minus the time that the first took to arrive
    again = asked.index(asked[0], 1)
    assert again > 1  # the other sender went on
    assert "jobqueue: task 0: 8 rows, " in capsys.readouterr().err


def test_an_add_to_a_virtual_topic_is_existing_where_all_its_jobs_are() -> None:
    created, existing = {"result": "created"}, {"result": "existing"}
    assert write_task._exists({"jobs": [existing, existing]}) and write_task._exists(existing)
    assert write_task._exists({"jobs": [existing, {"result": "cancelled", "state": "deleted"}]})
    assert write_task._exists({"jobs": [existing, {"result": "dead", "state": "dead"}]})
    assert not write_task._exists({"jobs": [existing, created]}) and not write_task._exists(created)
