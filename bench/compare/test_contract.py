"""The bench's own rules: what it must never show as a figure, and which way its ratios point."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.compare import (
    BATCHERS,
    BODY,
    Cpu,
    Late,
    MissingError,
    Run,
    System,
    WrongError,
    check,
    check_times,
    job_id,
)
from bench.compare.load.conversations import http, replies
from bench.compare.report import Report
from bench.compare.rounds import Found, Rounds
from bench.compare.systems.bare_redis import Bare
from bench.compare.systems.ours import Before
from bench.compare.systems.service import Service
from bench.compare.works import TINY, WORKS

BY_NAME = {work.name: work for work in WORKS}


class Peer(Bare):
    """The bare Redis under another name."""

    NAME = "peer"
    PEER = True


class Ours(Bare):
    NAME = "ours"


class Old(Bare):
    NAME = "ours@old"
    VARIANT = True


class Nowhere(Bare):
    NAME = "nowhere"

    def start(self, folder: Path) -> None:
        raise MissingError("its package is not to be had")


class Losing(Bare):
    NAME = "losing"

    def cycle(self, jobs: int, size: int, connections: int = BATCHERS) -> Run:
        check(["a"], ["a", "b"])
        raise AssertionError


def report(systems: list[System], found: Found) -> str:
    return Report(systems, found, TINY, {"date": "today"}).markdown()


def line(text: str, title: str) -> list[str]:
    """The cells of the first row with this title."""
    found = next(each for each in text.splitlines() if each.startswith(f"| {title} |"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_ids_and_bodies_are_as_long_as_they_are_said_to_be() -> None:
    assert len(job_id(0)) == len(job_id(10**15)) == 20
    assert len(f'"{BODY}"') == 100


@pytest.mark.parametrize("got", [["a"], ["a", "b", "b"], ["a", "b", "c"], ["a", "a"]])
def test_lost_doubled_and_strange_jobs_are_wrong(got: list[str]) -> None:
    with pytest.raises(WrongError):
        check(got, ["a", "b"])


def test_each_job_once_in_any_order_is_right() -> None:
    check(["b", "a"], ["a", "b"])


def test_an_early_job_is_wrong() -> None:
    assert check_times([0.0, 1.0]) == [0.0, 1.0]
    with pytest.raises(WrongError, match=r"1 early, by up to 0\.500 ms"):
        check_times([1.0, -0.5])


def test_a_ratio_over_one_means_that_ours_is_ahead_whether_more_or_less_is_better() -> None:
    found, idle = Found(), Cpu(0, 0)
    for name, seconds, ms in (("ours", 1, 2.0), ("peer", 2, 10.0), ("redis", 0.5, 1.0)):
        found.keep("batch", name, Run(100, seconds, idle))
        found.keep("late-200", name, Late([ms]))
    text = report([Ours(), Bare(), Peer()], found)
    assert line(text, BY_NAME["batch"].title)[1:6] == ["100", "200", "50", "x2.00", "x0.50"]
    assert line(text, BY_NAME["late-200"].title)[4:6] == ["x5.00", "x0.50"]


def test_other_versions_of_ours_have_a_table_of_their_own_with_the_ratio_to_each() -> None:
    found = Found()
    for name, seconds in (("ours", 1), ("ours@old", 2), ("redis", 0.5)):
        found.keep("batch", name, Run(100, seconds, Cpu(0, 0)))
    versions = report([Ours(), Old(), Bare()], found).partition("## Our service in other versions")[2]
    assert line(versions, BY_NAME["batch"].title)[1:3] == ["100", "50 x2.00"]
    compared = report([Ours(), Old(), Bare()], found).partition("## Our service in other versions")[0]
    assert "ours@old |" not in compared


def test_another_version_than_the_one_that_is_meant_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with pytest.raises(RuntimeError, match="is not what is imported"):
        Service(tmp_path, tmp_path / "source").start()


def test_a_commit_that_there_is_not_is_named_as_missing(tmp_path: Path) -> None:
    with Rounds([Before("0" * 40)], TINY, tmp_path) as rounds:
        assert "git" in rounds.found.missing["ours@0000000"]


def test_the_median_and_the_spread_of_the_rounds_are_shown() -> None:
    found = Found()
    for seconds in (1, 4, 2):
        found.keep("batch", "ours", Run(1000, seconds, Cpu(0, 0)))
    assert line(report([Ours()], found), BY_NAME["batch"].title)[1] == "500 (250 to 1,000)"


def test_a_system_that_is_not_to_be_had_is_named_with_the_reason_and_the_others_go_on(tmp_path: Path) -> None:
    systems: list[System] = [Nowhere(), Bare()]
    with Rounds(systems, TINY, tmp_path) as rounds:
        rounds.run([BY_NAME["cycle"]])
    text = report(systems, rounds.found)
    assert "not measured: its package is not to be had" in text
    assert len(rounds.found.figures["cycle"]["redis"]) == 1


@pytest.mark.parametrize(("works_s", "rounds"), [(0, 1), (1000, 3)])
def test_rounds_end_when_the_next_would_take_too_long_and_what_is_done_once_comes_all_the_same(
    works_s: float, rounds: int, tmp_path: Path
) -> None:
    sizes = replace(TINY, rounds=3, works_s=works_s)
    with Rounds([Bare()], sizes, tmp_path) as run:
        run.run([BY_NAME["bytes"], BY_NAME["cycle"]])
    assert (len(run.found.figures["cycle"]["redis"]), len(run.found.figures["bytes"]["redis"])) == (rounds, 1)


def test_growth_ends_when_it_is_late_and_says_so(tmp_path: Path) -> None:
    with Rounds([Bare()], replace(TINY, limit_s=0), tmp_path) as run:
        run.grow()
    assert run.found.words["batch@500"] == {"redis": "it takes too long for this bench"}


def test_a_system_that_loses_a_job_gets_words_and_no_figure(tmp_path: Path) -> None:
    systems: list[System] = [Losing(), Bare()]
    with Rounds(systems, TINY, tmp_path) as rounds:
        rounds.run([BY_NAME["cycle"]])
    assert "losing" not in rounds.found.figures["cycle"]
    assert "1 lost, 0 doubled, 0 strange" in report(systems, rounds.found)
    said = Report(systems, rounds.found, TINY, {})
    assert (said.failed("losing"), said.failed("redis")) == (True, False)


def test_a_figure_does_not_stay_when_a_later_round_goes_wrong() -> None:
    found = Found()
    found.keep("late-200", "ours", Late([1.0]))
    found.tell("late-200", "ours", "failed: early")
    assert not found.figures["late-200"] and not found.late_ms["late-200"]
    assert line(report([Ours()], found), BY_NAME["late-200"].title)[1] == "no"


def test_an_answer_is_read_once_it_is_whole() -> None:
    response = b"HTTP/1.1 200 OK\r\nDate: now\r\ncontent-length: 5\r\n\r\nhello"
    assert [http(response[:end]) for end in range(len(response))] == [None] * len(response)
    assert http(response) == b"hello"
    pair = b"$1\r\na\r\n:7\r\n"
    assert [replies(2)(pair[:end]) for end in range(len(pair))] == [None] * len(pair)
    assert replies(2)(pair) == [b"a", 7]
