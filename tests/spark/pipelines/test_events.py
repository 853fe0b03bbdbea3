"""Events are parsed, judged, and folded into one change per job."""

from __future__ import annotations

import argparse
import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import events, jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA = "key string, value string, topic string, partition int, offset bigint, timestamp timestamp"


class Queue:
    """A model of one job: what each command of an event does to it, according to the protocol."""

    def __init__(self, due: int | None) -> None:
        self.due = due

    def send(self, action: str, due: int | None) -> None:
        match action, self.due:
            case "delete", _:
                self.due = None
            case "add", None:
                self.due = due
            case "update", int():
                self.due = self.due if due is None else due


def test_a_fold_does_what_the_events_would_do_one_after_another(spark: SparkSession) -> None:
    source = random.Random(5)
    rows: dict[str, list[tuple[str, int | None]]] = {}
    for number in range(400):
        actions = [source.choice(["add", "update", "delete"]) for _ in range(source.randint(1, 6))]
        dues = [
            100 + place if action == "add" or source.random() < 0.7 else None for place, action in enumerate(actions)
        ]
        rows[f"job{number}"] = list(zip(actions, dues, strict=True))
    table = [(each, action, due, place) for each, sent in rows.items() for place, (action, due) in enumerate(sent)]
    source.shuffle(table)
    frame = spark.createDataFrame(table, "id string, action string, delay int, offset bigint").selectExpr(
        "*",
        "map('a', delay) AS body",  # a type without an order
        "'orders' AS topic",
        "0 AS partition",
        "timestamp_seconds(1000 - offset) AS timestamp",  # clocks may run backwards: the offset decides
    )
    folded = {row["id"]: row for row in events.folded(frame, ["delay", "body"]).collect()}
    assert set(folded) == set(rows)
    for each, sent in rows.items():
        for before in (None, 7):  # no such job, or one due at 7
            plainly, once = Queue(before), Queue(before)
            for action, due in sent:
                plainly.send(action, due)
            row = folded[each]
            if row["before"]:
                once.send(row["before"], row["old"]["delay"])
            if row["added"] and row["updated"] and once.due is not None:
                once.send("update", row["later"]["delay"])
            elif row["added"]:
                once.send("add", row["new"]["delay"])
            assert once.due == plainly.due, (sent, before, row)


def test_across_partitions_the_time_says_which_event_was_the_last(spark: SparkSession) -> None:
    table = [("a", "delete", 1, 5, 20), ("a", "add", 0, 9, 10), ("b", "delete", 0, 5, 10), ("b", "add", 1, 1, 20)]
    frame = spark.createDataFrame(table, "id string, action string, partition int, offset bigint, at int")
    frame = frame.selectExpr("*", "'t' AS topic", "timestamp_seconds(at) AS timestamp", "1 AS delay")
    folded = {row["id"]: (row["before"], row["added"]) for row in events.folded(frame, ["delay"]).collect()}
    assert folded == {"a": ("delete", False), "b": ("delete", True)}


def test_each_bad_event_is_reported_with_its_reason(spark: SparkSession) -> None:
    values = {
        '{"id": 1, "event": "NEW"}': None,
        '{"id": 1, "event": "SEEN"}': None,
        '{"event": "SEEN"}': None,
        '{"id": "one", "event": "NEW"}': "the value is not JSON of --value-schema",
        "nothing": "the value is not JSON of --value-schema",
        "": "the value is not JSON of --value-schema",
        '{"event": "NEW"}': "--id is null",
        '{"id": 1}': "--event is null",
        '{"id": 1, "event": "OTHER"}': "no --on for event OTHER",
        '{"id": 13, "event": "NEW"}': "--callback-url is null",
        '{"id": 13, "event": "PAID"}': None,
    }
    flags = ["--on", "NEW=add", "--on", "SEEN=ignore", "--on", "PAID=delete"]
    flags += ["--callback-url", "nullif(concat('http://shop/', v.id), 'http://shop/13')"]
    assert judged(spark, values, *flags) == values
    others = {each: None if problem and "OTHER" in problem else problem for each, problem in values.items()}
    assert judged(spark, values, *flags, "--on", "*=ignore") == others


def judged(spark: SparkSession, values: dict[str, Any], *flags: str) -> dict[str, Any]:
    """The problem reported for each value."""
    parser = argparse.ArgumentParser()
    jobs.add_flags(parser)
    events.add_flags(parser)
    needed = ["--topic", "t", "--id", "concat('o:', v.id)", "--delay", "9", "--event", "v.event"]
    arguments = parser.parse_args([*needed, "--value-schema", "id INT, event STRING", *flags])
    rows = spark.createDataFrame([(None, value, "t", 0, 0, None) for value in values], KAFKA)
    read = events.judged(events.parsed(rows, arguments.value_schema), arguments)
    return {row["value"]: row["problem"] for row in read.collect()}


def test_rules_and_schemas_that_cannot_be_are_refused_in_words(spark: SparkSession) -> None:
    assert events.rules(["A=add", "B=C=delete", "A=add", "*=ignore"]) == {"A": "add", "B=C": "delete", "*": "ignore"}
    for given in ("A", "=add", "A=push"):
        with pytest.raises(BadOption, match="--on must be EVENT=ACTION with one of add, delete, update, ignore, not"):
            events.rules([given])
    with pytest.raises(BadOption, match="--on A is given twice, with different actions"):
        events.rules(["A=add", "A=delete"])
    rows = spark.createDataFrame([], KAFKA)
    with pytest.raises(BadOption, match="--value-schema: "):
        events.parsed(rows, "id NUMBR")
    with pytest.raises(BadOption, match="--value-schema must name columns"):
        events.parsed(rows, "INT")
    with pytest.raises(BadOption, match="--format: the rows lack offset, which Kafka's have"):
        events.parsed(rows.drop("offset"), "id INT")
