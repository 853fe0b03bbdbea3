"""stream: events become jobs, whatever happens to the driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark_jobqueue.errors import JobQueueError
from pyspark_jobqueue.pipelines import stream
from pyspark_jobqueue.pipelines.parts import micro_batch

from tests.spark.conftest import CONF
from tests.spark.serving import Serving, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATER = 2_000_000_000
START_S = 200.0  # a separate driver takes 15 s to start on a quiet machine, and minutes next to other tests
RULES = [f"--on={rule}" for rule in ("CREATED=add", "PAID=delete", "EXTENDED=update", "RATED=ignore")]
WHAT = ["--value-schema", "id STRING, event STRING, due BIGINT", "--id", "v.id", "--event", "v.event", *RULES]
JOB = ["--due-at", "timestamp_seconds(v.due)", "--body", "if(v.event = 'CREATED', struct(v.id AS order), null)"]


class Shop:
    """Writes events as files, one micro-batch each, with running offsets. Events are (event, id, due)."""

    def __init__(self, folder: Path, topic: str) -> None:
        self.events, self.checkpoint, self.bad = folder / "events", folder / "checkpoint", folder / "bad"
        self.events.mkdir()
        self._topic = topic
        self._offset = self._files = 0

    def say(self, *events: tuple[str, str | None, int]) -> None:
        self.put(*(json.dumps({"event": event, "id": each, "due": LATER + due}) for event, each, due in events))

    def put(self, *values: str) -> None:
        lines = []
        for value in values:
            row = {"key": "k", "value": value, "topic": "orders", "partition": 0, "offset": self._offset}
            lines.append(json.dumps({**row, "timestamp": "2026-01-01T00:00:00Z"}))
            self._offset += 1
        hidden = self.events / f".{self._files:05}"
        hidden.write_text("\n".join(lines))
        os.utime(hidden, (1_700_000_000 + self._files,) * 2)  # Spark reads files in order of their time
        hidden.rename(self.events / f"{self._files:05}.json")
        self._files += 1

    def flags(self, serving: Serving, *more: str) -> list[str]:
        here = ["--url", serving.url, "--topic", self._topic, "--checkpoint", str(self.checkpoint)]
        files = ["--format", "json", "--from", str(self.events), "--option", "maxFilesPerTrigger=1"]
        return [*here, *files, *WHAT, *JOB, *more]

    def run(self, serving: Serving, *more: str) -> dict[str, Any]:
        """The figures of a run within this process over the existing files."""
        arguments = stream.parser().parse_args(self.flags(serving, "--once", *more))
        result = stream.stream(arguments).figures
        return {name: result[name] for name in ("micro_batches", *stream.FIGURES) if result[name]}

    def forget(self, batch: int) -> None:
        """Make it look as if the driver had died before recording the end of a micro-batch: it is repeated."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def bad_rows(self) -> list[dict[str, Any]]:
        files = [*self.bad.glob("unreadable/*/*.json"), *self.bad.glob("refused/*/*/*.jsonl")]
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def due(serving: Serving, topic: str) -> dict[str, float]:
    return {each.rpartition("/")[2]: job["due"] - LATER for each, job in serving.jobs(topic).items()}


@pytest.fixture
def shop(folder: Path, topic: str) -> Shop:
    return Shop(folder, topic)


def test_events_add_delete_and_update_jobs_wherever_a_micro_batch_ends(
    spark: SparkSession, serving: Serving, topic: str, shop: Shop, capfd: pytest.CaptureFixture[str]
) -> None:
    shop.say(("CREATED", "s/1", 1), ("CREATED", "s/2", 2), ("PAID", "s/2", 2), ("CREATED", "s/3", 3))
    shop.say(("EXTENDED", "s/1", 11), ("PAID", "s/3", 0), ("PAID", "s/9", 0), ("RATED", "s/1", 0))
    shop.say(("CREATED", "s/4", 4), ("EXTENDED", "s/4", 44), ("CREATED", "s/5", 5))
    assert shop.run(serving) == {
        "micro_batches": 3,
        "events": 11,
        "ignored": 1,
        "added": 4,
        "changed": 2,
        "gone": 2,  # the deletes of 2, which never existed, and of 9
    }
    assert due(serving, topic) == {"1": 11, "4": 44, "5": 5}
    jobs = serving.jobs(topic)
    assert [jobs[each]["value"] for each in ("s/1", "s/4")] == [{"order": "s/1"}, {"order": "s/4"}]
    assert "micro-batch 0: 4 events, 2 added, 1 gone in " in capfd.readouterr().err
    # Cancelled and created again: in one micro-batch, and in two.
    # And created again by mistake, then extended.
    shop.say(
        ("PAID", "s/5", 0),
        ("CREATED", "s/5", 55),
        ("CREATED", "s/3", 33),
        ("CREATED", "s/1", 1),
        ("EXTENDED", "s/1", 9),
    )
    assert shop.run(serving) == {"micro_batches": 1, "events": 5, "added": 3, "changed": 1}
    assert due(serving, topic) == {"1": 9, "3": 33, "4": 44, "5": 55}
    assert shop.run(serving) == {}


def test_a_repeated_micro_batch_changes_nothing(spark: SparkSession, serving: Serving, topic: str, shop: Shop) -> None:
    shop.say(("CREATED", "r/1", 1), ("CREATED", "r/2", -LATER), ("CREATED", "r/3", 3))
    shop.say(
        ("PAID", "r/3", 0), ("CREATED", "r/3", -LATER), ("PAID", "r/4", 0), ("CREATED", "r/5", 5), ("CREATED", "b d", 0)
    )
    first = shop.run(serving, "--bad-rows", str(shop.bad))
    assert first == {"micro_batches": 2, "events": 8, "added": 5, "changed": 1, "gone": 1, "refused": 1}
    done = [serving.ask("pop", topic=topic)["id"] for _ in range(2)]
    assert sorted(done) == ["r/2", "r/3"]
    for each in done:
        serving.ask("finish", id=each)
    before, bad = due(serving, topic), shop.bad_rows()
    assert set(before) == {"1", "5"}
    shop.forget(1)
    assert shop.run(serving, "--bad-rows", str(shop.bad))["events"] == 5
    assert due(serving, topic) == before
    assert shop.bad_rows() == bad
    assert [serving.ask("get", id=each)["state"] for each in done] == ["finished", "finished"]


def test_bad_rows_are_set_aside_and_the_others_are_done(
    spark: SparkSession, serving: Serving, topic: str, shop: Shop
) -> None:
    shop.put("{}", "no JSON", '{"event": "LOST", "id": "x/1"}', '{"event": "CREATED", "id": "x/2"}')
    shop.say(("CREATED", None, 1), ("CREATED", "x/3", 3), ("EXTENDED", "x/4", 4), ("CREATED", "x 5", 5))
    with pytest.raises(JobQueueError) as caught:  # instead of what Spark wraps it in
        shop.run(serving)
    assert str(caught.value) == (
        "3 bad rows, one at offset 0 in partition 0 of orders (--event is null); --bad-rows sets such rows aside"
    )
    result = shop.run(serving, "--bad-rows", str(shop.bad))
    assert result == {"micro_batches": 2, "events": 8, "unreadable": 4, "added": 1, "refused": 3}
    assert due(serving, topic) == {"3": 3}
    bad = shop.bad_rows()
    assert {row["offset"]: row["problem"] for row in bad if "problem" in row} == {
        0: "--event is null",
        1: "the value is not JSON of --value-schema",
        2: "no --on for event LOST",
        4: "--id is null",
    }
    refused = {row["id"]: (row["action"], row["code"], row["field"]) for row in bad if "code" in row}
    assert refused == {
        "x/2": ("add", "BAD_FIELD", "due_at"),
        "x/4": ("update", "NOT_FOUND", None),
        "x 5": ("add", "BAD_FIELD", "id"),
    }


def test_sigterm_ends_it_behind_the_running_micro_batch(
    spark: SparkSession, serving: Serving, topic: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told_to_stop(*given: Any) -> Any:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        return send(*given)

    shop.say(("RATED", "t/1", 0))
    shop.say(("RATED", "t/2", 0))
    send = micro_batch.send
    monkeypatch.setattr(micro_batch, "send", told_to_stop)
    one = {"micro_batches": 1, "events": 1, "ignored": 1}
    assert shop.run(serving) == one
    monkeypatch.undo()
    assert shop.run(serving) == one


@contextmanager
def driver(*given: str) -> Iterator[subprocess.Popen[str]]:
    """`stream` in a process of its own, with the JVM that it starts."""
    conf = [f"--conf={name}={value}" for name, value in CONF.items()]
    command = [sys.executable, "-m", "pyspark_jobqueue.pipelines.stream", "--master", "local[2]", *conf, *given]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, process_group=0)
    with started as process:
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the driver and its JVM with SIGKILL."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_driver_that_is_killed_in_mid_stream_loses_and_doubles_nothing(
    serving: Serving, topic: str, shop: Shop
) -> None:
    expected: dict[str, int] = {}

    def come(first: int, last: int) -> None:
        for number in range(first, last):
            at = -LATER if number % 4 == 0 else number  # some are due now
            ids = [f"k/{number}-{place}" for place in range(25)]
            shop.say(*(("CREATED", each, at) for each in ids), ("PAID", ids[0], 0))
            expected.update(dict.fromkeys(ids[1:], at))

    def created() -> int:
        return serving.totals(topic).get("created", 0)

    given = shop.flags(serving, "--every", "0.1")
    come(0, 3)
    with driver(*given) as process:
        until(lambda: created() > 24, START_S)  # it has reached the second micro-batch
        come(3, 5)
        kill(process)
    assert created() < len(expected)
    with driver(*given) as process:
        until(lambda: created() >= len(expected), START_S)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(output)["events"] > 0
    assert created() == len(expected)
    jobs = serving.jobs(topic)
    assert set(jobs) == set(expected)
    later = {each: job["due"] - LATER for each, job in jobs.items() if job["state"] == "delayed"}
    assert later == {each: at for each, at in expected.items() if at >= 0}
