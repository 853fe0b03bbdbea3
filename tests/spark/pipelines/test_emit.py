"""emit: rows become jobs, once each."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines import emit
from pyspark_jobqueue.pipelines.parts import command_line, increment

from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DUE = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
CALLBACK = ["--id", "concat('close:', id)", "--due-at", "pay_until", "--callback-url", "concat('http://shop/', id)"]


def run(serving: Serving, topic: str, *flags: str) -> dict[str, Any]:
    """The figures of a run within this process."""
    return emit.emit(emit.parser().parse_args(["--url", serving.url, "--topic", topic, *flags])).figures


def figures(result: dict[str, Any], *names: str) -> list[Any]:
    return [result[name] for name in names]


def orders(spark: SparkSession, folder: Path, first: int, last: int) -> str:
    """Orders as Parquet files; `pay_until` is not a whole millisecond."""
    path = str(folder / "orders")
    pay_until = f"timestamp_micros({int(DUE.timestamp())} * 1000000L + id * 1001) AS pay_until"
    spark.range(first, last).selectExpr("id", "id * 1.5 AS total", pay_until).write.mode("append").parquet(path)
    return path


def test_each_row_becomes_a_callback_and_a_second_run_finds_them_all(
    spark: SparkSession, serving: Serving, topic: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    monkeypatch.setenv("TRACEPARENT", trace)
    path = orders(spark, folder, 0, 50)
    flags = ["--from", path, "--format", "parquet", *CALLBACK, "--payload", "struct(id AS order, total)"]
    flags += ["--header", "X-Shop: one", "--header", "Accept: */*"]
    result = run(serving, topic, *flags)
    assert figures(result, "rows", "accepted", "existing", "refused", "retries") == [50, 50, 0, 0, 0]
    assert result["rows_per_second"] > 0
    jobs = serving.jobs(topic)
    assert set(jobs) == {f"close:{number}" for number in range(50)}
    assert jobs["close:7"]["value"] == {
        "url": "http://shop/7",
        "method": "POST",
        "headers": {"X-Shop": "one", "Accept": "*/*"},
        "payload": {"order": 7, "total": 10.5},
    }
    assert jobs["close:7"]["due"] == DUE.timestamp() + 0.008  # 7.007 ms, rounded up
    assert jobs["close:7"]["headers"] == {"traceparent": trace}
    assert jobs["close:7"]["backoff"] == [15, 15, 30, 180, 600, 1200, 1800, 3600]
    assert jobs["close:7"]["retention"] == 86_400
    assert figures(run(serving, topic, *flags), "accepted", "existing") == [0, 50]
    assert serving.totals(topic)["created"] == 50


def test_a_query_over_a_csv_file_gives_any_body_and_refused_rows_are_set_aside(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    (folder / "orders.csv").write_text('id,note,left\n1,"a ""b""",100\n2,,200\n3 3,bad id,300\n4,no time,\n')
    result = run(
        serving,
        topic,
        *("--from", str(folder / "orders.csv"), "--sql", "SELECT *, cast(left AS DOUBLE) AS wait FROM input"),
        *("--id", "id", "--delay", "wait", "--body", "struct(note, wait AS left)", "--backoff", "1,2.5"),
        *("--ttr", "7", "--priority", "9", "--tries", "3", "--ttl", "99", "--retention", "5", "--rate", "1000"),
        *("--on-error", str(folder / "refused")),
    )
    assert figures(result, "rows", "accepted", "refused") == [4, 2, 2]
    jobs = serving.jobs(topic)
    assert {each: job["value"] for each, job in jobs.items()} == {
        "1": {"note": 'a "b"', "left": 100.0},
        "2": {"note": None, "left": 200.0},
    }
    fields = ("ttr", "priority", "tries", "ttl", "retention", "backoff")
    assert [jobs["1"][field] for field in fields] == [7, 9, 3, 99, 5, [1, 2.5]]
    lines = [json.loads(line) for file in folder.glob("refused/*/*") for line in file.read_text().splitlines()]
    assert {line["id"]: line["field"] for line in lines} == {"3 3": "id", "4": "delay"}


def test_a_table_comes_over_jdbc_and_may_grow_meanwhile(
    spark: SparkSession, serving: Serving, topic: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"jdbc:derby:{folder}/shop"
    made = spark.range(30).selectExpr("id", "timestamp_seconds(1900000000 + id) AS pay_until", "id AS version")
    made.write.jdbc(f"{url};create=true", "orders")
    flags = [
        "--format",
        "jdbc",
        "--option",
        f"url={url}",
        "--from",
        "orders",
        *CALLBACK,
        "--id",
        "concat('jdbc:', id)",
    ]
    flags += ["--watermark", "ID", "--state", str(folder / "state")]
    assert figures(run(serving, topic, *flags), "accepted", "watermark") == [30, "29"]

    def come(first: int) -> None:
        made.selectExpr(f"id + {first} AS id", "pay_until", "version").write.mode("append").jdbc(url, "orders")

    def write(*given: Any) -> None:
        come(60)
        written(*given)

    come(30)
    written = emit._write
    monkeypatch.setattr(emit, "_write", write)
    assert figures(run(serving, topic, *flags), "rows", "accepted", "watermark") == [30, 30, "59"]
    monkeypatch.undo()
    assert figures(run(serving, topic, *flags), "rows", "accepted", "watermark") == [30, 30, "89"]
    assert serving.jobs(topic)["jdbc:29"]["due"] == 1_900_000_029


def test_only_what_is_new_is_sent_and_what_comes_late_at_the_mark_is_not_lost(
    spark: SparkSession, serving: Serving, topic: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, state = str(folder / "orders"), str(folder / "state")

    def come(*ids: int, at: str | None) -> None:
        rows = [(each, at) for each in ids]
        frame = spark.createDataFrame(rows, "id int, text string").coalesce(1)
        frame.selectExpr("id", "cast(text AS TIMESTAMP) AS updated_at").write.mode("append").parquet(path)

    def emitted(*more: str) -> list[Any]:
        flags = [
            "--from",
            path,
            "--format",
            "parquet",
            "--id",
            "concat('late:', id)",
            "--delay",
            "100",
            "--state",
            state,
        ]
        result = run(serving, topic, *flags, "--watermark", "updated_at", *more)
        return figures(result, "rows", "accepted", "watermark")

    come(1, 2, at="2026-01-01 10:00:00.000001")
    come(3, at=None)
    assert emitted("--dry-run") == [2, 0, "2026-01-01T10:00:00.000001+00:00"]
    assert emitted() == [2, 2, "2026-01-01T10:00:00.000001+00:00"]
    assert emitted() == [0, 0, "2026-01-01T10:00:00.000001+00:00"]
    come(4, at="2026-01-01 10:00:00.000001")
    assert emitted() == [1, 1, "2026-01-01T10:00:00.000001+00:00"]
    assert emitted()[0] == 0
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")  # the watermark is an instant, whatever the zone
    try:
        assert emitted()[0] == 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    come(5, 6, 7, at="2026-01-01 11:00:00")
    monkeypatch.setattr(increment, "MOST_IDS", 2)
    assert emitted() == [3, 3, "2026-01-01T11:00:00+00:00"]
    come(8, at="2026-01-01 11:00:00")
    assert emitted()[:2] == [4, 1]  # too many to tell which are new: all are sent again and found by their ids
    assert set(serving.jobs(topic)) == {f"late:{each}" for each in (1, 2, 4, 5, 6, 7, 8)}


def test_rows_without_a_watermark_and_marks_with_too_many_rows_are_told(
    spark: SparkSession,
    serving: Serving,
    topic: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(increment, "MOST_IDS", 1)
    query = "SELECT id, nullif(id, 3) % 1 AS day FROM range(5)"
    flags = [
        "--sql",
        query,
        "--id",
        "id",
        "--delay",
        "100",
        "--watermark",
        "day",
        "--state",
        str(folder / "state"),
    ]
    result = run(serving, topic, *flags)
    assert figures(result, "rows", "without_watermark") == [4, 1]
    assert result["at_watermark"] == "more than 1 rows: the next run sends them again"
    assert "1 rows have no watermark and were not sent" in capfd.readouterr().err


def test_a_write_that_fails_leaves_the_mark_where_it_was(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    state = folder / "state"
    flags = [
        "--id",
        "if(id = 3, 'b d', string(id))",
        "--delay",
        "100",
        "--watermark",
        "id",
        "--state",
        str(state),
    ]
    with pytest.raises(Exception, match="row with id 'b d', column id"):
        run(serving, topic, "--sql", "SELECT * FROM range(5)", *flags)
    assert not state.exists()
    run(serving, topic, "--sql", "SELECT * FROM range(3)", *flags)
    before = state.read_text()
    with pytest.raises(Exception, match="row with id 'b d', column id"):
        run(serving, topic, "--sql", "SELECT * FROM range(5)", *flags)
    assert state.read_text() == before


def test_an_invalid_run_is_refused_before_a_row_is_read(
    subtests: pytest.Subtests, spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    cases: list[tuple[list[str], str]] = [
        (["--watermark", "id"], "--watermark and --state require each other"),
        (["--sql", "SELEC 1"], "--sql: .*SELEC"),
        (["--from", "no_such"], "--from: .*no_such"),
        (
            ["--from", "s3a://d/orders/"],
            "--format is missing: it cannot be inferred from the ending of 's3a://d/orders/'",
        ),
        (["--format", "csv", "--option", "secret"], "--option must be NAME=VALUE; 'secret' has no ="),
        (["--id", "order_id"], "--id: .*order_id"),
        (
            ["--due-at", "current_date()"],
            "--due-at must be a timestamp, not date; CAST.* uses the session's time zone",
        ),
        (["--body", "max(id)"], "--body: .*GROUP BY"),
        (["--payload", "id"], "--payload requires --callback-url"),
        (["--method", "PUT"], "--method requires --callback-url"),
        (["--body-format", "json"], "--body-format requires --body"),
        (["--body", "id", "--callback-url", "'http://x'"], "--body and --callback-url exclude each other"),
        (["--callback-url", "id"], "--callback-url must be a string, not bigint"),
        (["--callback-url", "'x'", "--method", "GET", "--payload", "id"], "--payload: a GET request has none"),
        (["--callback-url", "'x'", "--header", "X Y: z"], "--header must be like 'Name: value'; 'X Y' is not a name"),
        (["--callback-url", "'x'", "--header", "A: b\nC: d"], "--header A: the value must be printable ASCII"),
        (["--callback-url", "'x'", "--header", "Webhook-Id: 1"], "--header Webhook-Id: a job may not set this header"),
        (["--callback-url", "'x'", "--header", "A: b", "--header", "a: c"], "--header a is given twice"),
        (["--rate", "0"], "--rate must be at least 1, not 0"),
        (["--backoff", "1;2"], "--backoff must be seconds separated by commas"),
        (["--watermark", "name", "--state", "STATE"], "--watermark must be a timestamp, .* but name is string"),
        (["--watermark", "nam", "--state", "STATE"], "--watermark: unknown column 'nam'; available: id, name"),
    ]
    for typed, words in cases:
        with subtests.test(typed=typed, words=words):
            given = [str(folder / "state") if flag == "STATE" else flag for flag in typed]
            defaults = {"--sql": "SELECT id, 'x' AS name FROM range(3)", "--id": "id", "--delay": "5"}
            for name, text in defaults.items():
                other = {"--sql": ("--from", "--format"), "--delay": ("--due-at",)}.get(name, ())
                if name not in given and not set(other) & set(given):
                    given += [name, text]
            with pytest.raises(BadOption, match=words):
                run(serving, topic, *given)
            assert serving.jobs(topic) == {}


def test_a_callback_without_a_url_is_not_scheduled(spark: SparkSession, serving: Serving, topic: str) -> None:
    flags = [
        "--sql",
        "SELECT id FROM range(3)",
        "--id",
        "id",
        "--delay",
        "9",
        "--callback-url",
        "nullif('x', 'x')",
    ]
    with pytest.raises(Exception, match="--callback-url is null for id"):
        run(serving, topic, *flags)
    assert serving.jobs(topic) == {}


def test_a_wrong_expression_is_one_line(
    spark: SparkSession, serving: Serving, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = ["--url", serving.url, "--topic", topic, "--sql", "SELECT 1 AS id", "--id", "ib", "--delay", "1"]
    with pytest.raises(SystemExit) as caught:
        command_line.run(emit.emit, emit.parser().parse_args(given))
    result = capfd.readouterr().err
    assert caught.value.code == 2
    assert result.startswith("error: --id: ") and result.count("\n") == 1
    assert "`ib` cannot be resolved. Did you mean one of the following? [`id`]" in result


def test_the_command_line_ends_with_one_line_and_a_code(serving: Serving, topic: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pyspark_jobqueue.pipelines.emit", "--url", serving.url, "--topic", topic]
    flags = [
        "--sql",
        "SELECT 1",
        "--id",
        "'a'",
        "--delay",
        "1",
        "--watermark",
        "day",
        "--state",
        str(folder / "state"),
    ]
    with increment.lock(str(folder / "state")):
        ran = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"error: another run is using --state {folder}/state; wait until it has ended\n"
