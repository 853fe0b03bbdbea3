"""`jobqueue sizing`, and that docs/sizing.md says what it reckons with. That the constants are right is measured by
bench/sizing.py: bytes by `make bench-check`, CPU by `make bench-sizing`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jobqueue.cli.main import main
from jobqueue.cli.sizing import IN_BATCHES, ONE_A_REQUEST, SIZES, Cost, Load, needs

DOCUMENT = (Path(__file__).parents[3] / "docs" / "sizing.md").read_text()


def said(*flags: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["sizing", *flags])
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.output))


def test_the_document_has_the_bytes_of_each_state() -> None:
    row = re.compile(
        r"^\| (delayed|far|ready|reserved|dead|tombstone)\b[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", re.M
    )
    told = {state: tuple(map(float, numbers)) for state, *numbers in row.findall(DOCUMENT)}
    assert told == {state: (size.base, size.per_id, size.per_body) for state, size in SIZES.items()}


def test_the_document_has_the_cpu_of_a_job() -> None:
    rows = re.findall(
        r"^\| (batches|one job)[^|]*(?:100|64 connections) \| (\d+) \| (\d+) \| ([\d,]+) \|", DOCUMENT, re.M
    )
    told = {
        kind: (Cost(float(redis), float(service)), int(most.replace(",", ""))) for kind, redis, service, most in rows
    }
    assert {kind: cost for kind, (cost, _) in told.items()} == {"batches": IN_BATCHES, "one job": ONE_A_REQUEST}
    for cost, most in told.values():
        assert 0.97 * 1e6 / cost.redis_us < most <= 1e6 / cost.redis_us


def test_the_examples_of_the_document_follow_from_the_formula() -> None:
    text = DOCUMENT.partition("## Examples")[2].partition("## ")[0]
    found = re.findall(r"^\| (\w+?)s?\b[^|]*\| ([\d,]+) \| (\d+) \| ([\d,]+) \|", text, re.M)
    shapes = [(20, 200), (20, 200), (20, 200), (30, 250), (30, 250)]
    assert len(found) == len(shapes)
    for (state, jobs, each, megabytes), shape in zip(found, shapes, strict=True):
        number = int(jobs.replace(",", ""))
        assert int(each) == round(SIZES[state].of(*shape))
        assert int(megabytes.replace(",", "")) == round(number * int(each) / 1e6)


def test_the_table_up_to_a_billion_jobs_says_what_the_command_says() -> None:
    rows = DOCUMENT.partition("## Up to a billion jobs")[2].splitlines()
    cells = {row.split(" | ")[0].strip("| "): row.strip("| ").split(" | ")[1:] for row in rows if row.startswith("|")}
    powers = {"10⁷": 10**7, "10⁸": 10**8, "10⁹": 10**9}
    columns = [each.split(", ") for each in cells["jobs pending, mean delay"]]
    for at, (jobs, delay) in enumerate(columns):
        short = delay.replace(" min", "m").replace(" days", "d").replace(" day", "d")
        needed = said("--jobs", str(powers[jobs]), "--delay", short, "--body-bytes", "100")
        assert (
            abs(float(cells["memory of the jobs, GB"][at]) - needed["redis_bytes"] / 1e9)
            <= needed["redis_bytes"] / 5e10
        )
        assert cells["masters; shards"][at] == f"{needed['masters']}; {needed['shards']}"


def test_a_small_load_needs_one_redis_and_one_process() -> None:
    needed = said("--rate", "115", "--delay", "30m", "--body-bytes", "200")
    assert (needed["jobs"], needed["tombstones"]) == (207_000, 6_900)
    assert (needed["masters"], needed["shards"], needed["processes"]) == (1, 1, 1)
    assert needed["redis_bytes"] == 207_000 * 504 + 6_900 * 224
    a_day = said("--rate", "115", "--delay", "1d", "--body-bytes", "200")
    assert a_day["redis_bytes"] == 115 * (3_600 * 504 + 82_800 * 408 + 60 * 224)
    assert needed["maxmemory_bytes"] == needed["redis_bytes"] * 1.5


def test_two_of_jobs_rate_and_delay_say_the_third() -> None:
    whole = said("--rate", "100", "--delay", "1h")
    assert said("--jobs", "360000", "--delay", "1h") == whole
    assert said("--jobs", "360000", "--rate", "100") == whole
    assert said("--jobs", "360001", "--rate", "100", "--delay", "1h")["jobs"] == 360_001
    assert said("--jobs", "5", "--rate", "100", "--delay", "1h") == whole


@pytest.mark.parametrize("flags", [[], ["--jobs=5"], ["--rate=5"], ["--delay=5"], ["--jobs=5", "--delay=0"]])
def test_less_than_two_of_them_are_refused(flags: list[str]) -> None:
    result = CliRunner().invoke(main, ["sizing", *flags])
    assert result.exit_code == 2
    assert "two of --jobs, --rate and --delay (above 0) are needed" in result.output


@pytest.mark.parametrize(
    ("load", "masters", "shards"),
    [
        (Load(jobs=15_000_000, body_bytes=250, rate=0, retention_s=60), 1, 1),
        (Load(jobs=25_000_000, body_bytes=250, rate=0, retention_s=60), 3, 16),  # by memory
        (Load(jobs=0, body_bytes=250, rate=17_000, retention_s=0), 1, 1),
        (Load(jobs=0, body_bytes=250, rate=18_000, retention_s=0), 3, 16),  # by the core of Redis
        (Load(jobs=144_000_000, body_bytes=250, rate=40_000, retention_s=60), 9, 48),
    ],
)
def test_a_larger_load_needs_a_cluster_with_five_shards_a_master(load: Load, masters: int, shards: int) -> None:
    needed = needs(load)
    assert (needed["masters"], needed["shards"]) == (masters, shards)


def test_a_load_that_no_namespace_can_be_spread_over_is_refused() -> None:
    result = CliRunner().invoke(main, ["sizing", "--rate", "4000000", "--jobs", "1"])
    assert result.exit_code == 1
    assert "232 servers of Redis" in result.output
