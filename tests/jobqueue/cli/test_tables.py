"""Answers as tables, of all shapes that the service gives."""

from __future__ import annotations

import io
import time
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from jobqueue.cli import tables
from jobqueue.cli.sizing import Load, needs


def lines(table: RenderableType, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def job(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "state": "ready", "due": 0, "attempt": 0, "tries": 16, "value": 1, **fields}


def test_an_answer_leaves_out_what_is_null_and_tells_times_and_spans() -> None:
    shown = lines(tables.answer({"success": True, "id": "a", "ttl": None, "ttr": 90.0, "backoff": [15.0, 60.0]}))
    assert [line.split(maxsplit=1) for line in shown] == [
        ["id", "a"],
        ["ttr", "1 min 30 s"],
        ["backoff", "15 s, 1 min"],
    ]


def test_an_add_to_a_virtual_topic_shows_a_line_for_each_of_its_jobs() -> None:
    copies = [job(id=f"paid:1@{topic}", topic=topic, result="created") for topic in ("invoice", "mail")]
    shown = lines(tables.answer({"success": True, "id": "paid:1", "topic": "paid", "jobs": copies}))
    assert shown[2].split(maxsplit=1) == ["jobs", "paid:1@invoice (created, ready)"]
    assert shown[3].strip() == "paid:1@mail (created, ready)"


def test_text_is_not_read_as_markup() -> None:
    assert "[red]x[/]" in lines(tables.answer({"reason": "[red]x[/]"}))[0]
    assert "[/nonsense]" in lines(tables.jobs([job(value="[/nonsense]")]))[-1]


def test_a_long_body_is_cut_off_before_an_id_is_folded() -> None:
    row = lines(tables.jobs([job(id="x" * 32, value="y" * 150, due=time.time())]), width=80)[-1]
    assert row.split()[0] == "x" * 32
    assert row.endswith("…")
    assert len(row) <= 80


def test_a_job_tells_its_end_and_that_its_tries_have_none() -> None:
    row = lines(tables.jobs([job(state="dead", cause="tries", tries=0, attempt=3)]))[-1]
    assert "dead (tries)" in row
    assert "3/∞" in row


def test_a_dead_letter_shows_why_and_when_it_died() -> None:
    row = lines(tables.jobs([job(state="dead", cause="tries", reason="no connection", dead_since=time.time() - 180)]))[
        -1
    ]
    assert "died 3 min ago" in row and "no connection" in row


def test_a_job_that_was_given_back_shows_when_it_is_due_again_and_why() -> None:
    now = time.time()
    row = lines(tables.jobs([job(state="delayed", due=now - 60, until=now + 60, reason="no connection")]))[-1]
    assert "(in 1 min)" in row and "no connection" in row


def test_a_reserved_job_shows_its_worker_and_the_end_of_its_lease() -> None:
    row = lines(tables.jobs([job(state="reserved", worker="web1:412", reserved_until=time.time() + 60)]))[-1]
    assert "lease ends in " in row and "web1:412" in row


def test_figures_say_paused_and_blocked_and_name_the_newest_dead_letter() -> None:
    newest = {"id": "order-7", "cause": "tries", "reason": "no connection", "dead_since": time.time() - 180}
    figures = {"topic": "t", "counts": {"dead": 1}, "totals": {}, "oldest_ready": None, "due": {}}
    more = {"paused": True, "paused_until": None, "blocked": 1200, "newest_dead": newest}
    shown = lines(tables.stats(figures | more))
    assert " paused until it is resumed" in shown
    assert " 1,200 of the ready jobs wait for others of their key" in shown
    assert " the newest dead letter died 3 min ago: order-7 (tries, no connection)" in shown


def topic(name: str, **others: Any) -> dict[str, Any]:
    counts = {"delayed": 1200, "ready": others.pop("ready", 0), "reserved": 0, "dead": others.pop("dead", 0)}
    return {"topic": name, "counts": counts, "oldest_ready_s": None, "workers": 0, "paused": False} | others


def test_topics_begin_with_the_longest_wait_then_dead_letters_then_stand_by_name() -> None:
    some = [topic("b"), topic("a"), topic("dead", dead=3), topic("late", oldest_ready_s=47.04, ready=349, workers=2)]
    shown = lines(tables.topics(some))[-4:]
    assert [line.split()[0] for line in shown] == ["late", "dead", "a", "b"]
    assert shown[0].split() == ["late", "1,200", "349", "0", "0", "47", "s", "2"]


def test_a_paused_topic_shows_the_end_of_its_pause() -> None:
    until = time.mktime((2030, 1, 1, 9, 0, 0, 0, 0, -1))
    some = [topic("a", paused=True, paused_until=None), topic("b", paused=True, paused_until=until)]
    first, second = lines(tables.topics(some))[-2:]
    assert first.endswith(" yes") and second.endswith(" until 2030-01-01 09:00:00")


def test_schedules_stand_by_their_next_time_and_those_without_one_come_last() -> None:
    nine = time.mktime((2030, 1, 1, 9, 0, 0, 0, 0, -1))
    row = {"topic": "t", "paused": False, "last": None}
    some = [
        row | {"name": "off", "every": 5400.0, "next": [], "paused": True, "last": nine},
        row | {"name": "over", "cron": "0 0 29 2 *", "zone": "UTC", "next": []},
        row | {"name": "late", "every": 600.0, "next": [nine + 3600, nine + 4200]},
        row
        | {"name": "soon", "cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin", "next": [nine], "last": nine - 86400},
    ]
    assert [" ".join(line.split()) for line in lines(tables.schedules(some))[-4:]] == [
        "soon t 0 9 * * MON-FRI Europe/Berlin 2030-01-01 09:00:00 2029-12-31 09:00:00",
        "late t every 10 min 2030-01-01 10:00:00",
        "off t every 1 h 30 min paused 2030-01-01 09:00:00",
        "over t 0 0 29 2 * UTC never",
    ]


def test_workers_stand_by_name_with_their_state_and_jobs_in_hand() -> None:
    now = time.time()
    row = {"topics": ["t", "u"], "instance": "host:8000/1", "client": "10.0.0.1:5", "last_pop": now, "since": now - 60}
    some = [row | {"worker": "b", "state": "parked", "jobs": 0}, row | {"worker": "a", "state": "busy", "jobs": 1200}]
    some.append(row | {"worker": "c", "state": "idle", "jobs": 0, "last_pop": now - 45})
    first, second, third = lines(tables.workers(some))[-3:]
    assert first.split()[:5] == ["a", "t,", "u", "busy", "1,200"]
    assert second.split()[:5] == ["b", "t,", "u", "parked", "0"]
    assert first.endswith("1 min ago   host:8000/1")
    assert third.split()[:8] == ["c", "t,", "u", "idle,", "last", "seen", "45", "s"]  # it may have ended without a word


def test_figures_show_rates_only_when_there_are_some() -> None:
    figures = {"topic": None, "counts": {"ready": 1}, "totals": {"created": 5}, "oldest_ready": None, "due": {"1m": 0}}
    assert not any("per second" in line for line in lines(tables.stats(figures)))
    (row,) = [line for line in lines(tables.stats(figures, {"created": 2.5})) if "created" in line]
    assert row.split() == ["created", "5", "2.5"]


def test_an_action_says_who_did_what_with_what_came_of_it() -> None:
    purge = {
        "actor": "chief/[red]zoe[/]",
        "action": "purge",
        "topic": "mail",
        "state": "dead",
        "address": "192.0.2.1:5",
    }
    reload = {"actor": "-", "action": "reload", "changed": ["topics"]}
    some = [
        {"at": time.time(), "outcome": "OK", "done": 2, **purge},
        {"at": 0, "outcome": "not known", "done": 0, **reload},
    ]
    shown = lines(tables.actions(some), 120)
    assert shown[-2].split()[1:] == ["chief/[red]zoe[/]", "purge", "mail", "dead", "OK", "2", "192.0.2.1:5"]
    assert shown[-1].split()[2:] == ["-", "reload", "topics", "not", "known", "0"]


def test_what_a_load_needs_is_told_in_four_lines() -> None:
    shown = lines(tables.sizing(needs(Load(jobs=144_000_000, body_bytes=250, rate=40_000, retention_s=60))), width=160)
    assert shown[0].split(maxsplit=1) == ["jobs", "144,000,000 delayed, 2,400,000 tombstones"]
    assert "81,178 MB of jobs; maxmemory 121,767 MB, 243,533 MB of disk" in shown[1]
    assert "a Cluster of 9 masters, shards = 48; 1.2 cores busy, 0.6 cores with batches of 100" in shown[2]
    assert "processes: 9, over two instances at least; 590 MB; 4.3 cores busy, 0.5 cores with batches" in shown[3]


def test_a_small_load_keeps_less_than_a_tenth_of_a_core_busy() -> None:
    shown = lines(tables.sizing(needs(Load(jobs=10, body_bytes=250, rate=1, retention_s=60))), width=160)
    assert "one server, one shard; less than 0.1 cores busy" in shown[2]


def bins(number: int, width: int = 60, jobs: int = 1) -> list[dict[str, Any]]:
    return [{"begin": 7200.0 + n * width, "width": width, "jobs": jobs, "scheduled": 2} for n in range(number)]


def process(**fields: Any) -> dict[str, Any]:
    known = {"instance": "h:8000", "host": "h", "pid": 7, "version": "1.0", "started": time.time() - 90}
    return known | {"signed": time.time(), "timers": {"0": [0, 3]}, "parked": 0, **fields}


def test_an_instance_shows_its_version_and_how_many_timers_of_which_shards_it_holds() -> None:
    shown = lines(tables.instances([process(timers={"0": [1, 2, 3]}), process(timers={"2": [0], "10": [0, 1]})]))
    assert [line.split()[:4] for line in shown[2:]] == [["h:8000", "h", "7", "1.0"]] * 2
    assert shown[2].split()[-2:] == ["3", "0"]
    assert "3 (shards 2, 10)" in shown[3]


def test_an_instance_of_which_only_the_signature_is_known_says_so() -> None:
    nothing = dict.fromkeys(("instance", "host", "pid", "version", "started", "timers"))
    assert lines(tables.instances([process(**nothing)]))[2].split()[:4] == ["not", "known", "not", "known"]


def test_versions_stand_out_if_they_differ() -> None:
    def styles(*versions: str | None) -> set[str]:
        table = tables.instances([process(version=each) for each in versions])
        assert isinstance(table, Table)
        return {str(cell.style) for cell in table.columns[3].cells if isinstance(cell, Text)}

    assert styles("1.0", "1.0") == {""}
    assert styles("1.0", "1.1") == styles("1.0", None) == {"bold yellow"}


def test_settings_show_lists_as_json_and_where_each_came_from() -> None:
    some: list[dict[str, Any]] = [
        {"name": "host", "value": "h", "source": "default"},
        {"name": "default_backoff_s", "value": [1.0, 5.0], "source": "file"},
    ]
    assert [" ".join(line.split()) for line in lines(tables.settings(some))[2:]] == [
        "host h default",
        "default_backoff_s [1.0, 5.0] file",
    ]


def test_policies_show_what_a_topic_sets_itself() -> None:
    shown = lines(tables.policies([{"topic": "t", "ttr_s": 5.0, "tries": 3, "own": ["ttr_s"]}]))
    assert [line.split() for line in shown[2:]] == [["t", "ttr_s", "5.0"]]


def test_a_forecast_has_a_row_for_each_bin() -> None:
    shown = lines(tables.forecast(bins(2)))
    assert [line.split()[2:6] for line in shown[2:]] == [["1", "min", "1", "2"]] * 2


def test_a_forecast_of_many_bins_has_a_row_for_each_hour() -> None:
    shown = lines(tables.forecast(bins(60) + bins(1, width=3600, jobs=7)))
    assert [line.split()[2:6] for line in shown[2:]] == [["1", "h", "67", "122"]]


def test_figures_have_a_row_for_each_bin_and_one_for_all() -> None:
    late = {"counts": [], "p50": 0.0012, "p99": 61.5}
    span = {"adds": 1200, "deliveries": 2, "finishes": 3, "deaths": {"ttl": 1, "tries": 4}, "due_to_ready": None}
    bins = [{"begin": 7200.0, "due_to_delivered": late, **span}, {"begin": 7260.0, "due_to_delivered": None, **span}]
    shown = lines(tables.figures({"bins": bins, "total": bins[0]}), width=120)
    numbers = ["1,200", "2", "3", "5"]
    assert shown[2].split()[2:] == [*numbers, "1.2", "ms", "1", "min", "2", "s"]
    assert shown[3].split()[2:] == numbers
    assert shown[-1].split()[:5] == ["total", *numbers]
