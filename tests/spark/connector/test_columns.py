"""The checks of a write's schema and options, and their messages."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark_jobqueue.connector.columns import JOBS
from pyspark_jobqueue.connector.writer import Write, batch_writer
from pyspark_jobqueue.errors import BadOption

from tests.spark.connector.schemas import parsed

pytestmark = pytest.mark.usefixtures("spark")  # parsing DDL needs one
OPTIONS = {"url": "http://localhost:1", "topic": "t"}


def planned(schema: str, **options: str | None) -> Write:
    given = {name: text for name, text in (OPTIONS | options).items() if text is not None}
    return Write.plan(given, parsed(schema))


def refusal(schema: str, **options: str | None) -> str:
    with pytest.raises(BadOption) as caught:
        planned(schema, **options)
    return str(caught.value)


def test_a_schema_that_does_not_fit_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("topic string", "column id is missing"),
        ("id bigint", "column 'id' (id) must be a string, not bigint: cast it to string"),
        (
            "id string, due_at date",
            "must be a timestamp (with local time zone), not date: it has no time zone; cast it",
        ),
        ("id string, due_at timestamp_ntz", "it has no time zone; cast it to timestamp"),
        ("id string, due_at bigint", "timestamp_seconds or timestamp_millis"),
        ("id string, delay string", "column 'delay' (delay) must be a number of seconds, not string"),
        ("id string, due_at timestamp, delay int", "due_at and delay exclude each other"),
        ("id string, body binary", "cast binary to string, or use base64()"),
        ("id string, body map<int,string>", "a map's keys must be strings"),
        ("id string, body struct<a: interval day to second>", "JSON has no interval day to second; cast it to string"),
        ("id string, priority double", "must be an integer, not double"),
        ("id string, backoff array<string>", "must be an array of numbers, or a string like 15,15,30"),
        ("id string, headers map<string,int>", "must be a map of strings"),
        ("id string, tags string", "must be an array of strings"),
        ("id string, dueat timestamp", "unknown column 'dueat'; did you mean due_at?"),
        ("id string, ID string", "2 columns are named 'id'"),
    ]
    for schema, sentence in cases:
        with subtests.test(schema=schema, sentence=sentence):
            assert sentence in refusal(schema)


def test_options_that_cannot_be_are_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Mapping[str, str | None], str]] = [
        ({"url": None}, "option url is missing"),
        ({"topic": None}, "set option topic, or add a column topic"),
        ({"topic": "order-*"}, "option topic must be one topic: up to 255 characters from A-Z"),
        ({"batchSize": "1001"}, "option batchSize must be an integer from 1 to 1000, not '1001'"),
        ({"inFlight": "0"}, "option inFlight must be an integer from 1 to 64"),
        ({"rowsPerSecondPerTask": "fast"}, "option rowsPerSecondPerTask must be an integer"),
        ({"ifExists": "update"}, "option ifExists must be one of keep, renew, replace, reject, later, sooner"),
        ({"bodyFormat": "text"}, "option bodyFormat must be one of string, json"),
        ({"batchsise": "1"}, "unknown option 'batchsise'; did you mean batchSize?"),
        ({"dueAtColumn": "pay_until"}, "option dueAtColumn names an unknown column 'pay_until'; available: id, body"),
        ({"bodyColumn": "id"}, "column 'body' and the one that option bodyColumn names are both present"),
        ({"onError": "ignore"}, "option onError must be fail, skip, or a folder whose path contains a /, not 'ignore'"),
        ({"onError": "s4://bucket"}, "option onError must be a folder or the URI of one, not 's4://bucket'"),
        ({"onError": "dbfs:/bad"}, "option onError must be a folder or the URI of one, not 'dbfs:/bad'"),
    ]
    for options, sentence in cases:
        with subtests.test(options=options, sentence=sentence):
            assert sentence in refusal("id string, body string", **options)


def test_a_queue_is_not_overwritten() -> None:
    with pytest.raises(BadOption, match=r'write with mode\("append"\)'):
        batch_writer(OPTIONS, parsed("id string"), overwrite=True)


def test_columns_are_found_in_any_case_and_by_other_names() -> None:
    write = planned(
        "`Order` string, BODY struct<a:int>, pay_until timestamp", idColumn="order", DUEATCOLUMN="pay_until"
    )
    assert write.columns.places == {"id": 0, "body": 1, "due_at": 2}
    assert write.columns.name("at") == "pay_until"


def test_one_column_may_serve_two_fields() -> None:
    assert planned("id string", bodyColumn="id").columns.places == {"id": 0, "body": 0}


def test_the_columns_of_a_read_fit_a_write() -> None:
    write = planned(", ".join(f"{name} {kind}" for name, kind in JOBS.items()), topic=None)
    assert len(write.columns.places) + len(write.columns.read_only) == len(JOBS)


def test_a_topic_is_not_needed_where_rows_say_what_is_done() -> None:
    assert planned("id string, action string", topic=None).options.topic is None


def test_no_secret_is_shown() -> None:
    assert "geheim" not in repr(planned("id string", token="geheim"))  # noqa: S106
    assert "geheim" not in refusal("id string", onError="s4://key:geheim@bucket/bad")


def test_a_folder_in_s3_may_have_the_name_that_spark_knows_it_by() -> None:
    assert planned("id string", onError="s3a://key:geheim@bucket/bad?region=eu-west-1")
