"""Short runs of all benchmarks, so that none of them rots. What they measure is not judged here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import (
    burst,
    clients,
    cluster,
    explain,
    export,
    journal_run,
    memory,
    outbox,
    punctual,
    restore,
    schedules,
    scripts,
    sizing,
    ten_million,
    tls,
    tokens,
    walk,
)
from bench.compare import NOT_MEASURED, MissingError
from bench.compare.__main__ import GROUPS, bench, load, versions
from bench.compare.install import program
from bench.compare.load.compiled import compiler
from bench.compare.systems import ours
from bench.compare.works import TINY
from tests.kit.redis_server import binaries, binary
from tests.kit.service import ROOT

TIMED = ["late", "burst", "crowd", "growth"]  # works that begin at a due time: they wait more than they work


async def test_the_memory_benchmark_runs_and_a_job_is_within_its_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """Unlike seconds, bytes do not depend on the load of the machine."""
    assert await memory.main([100_000]) == 0
    assert "bytes a job" in capsys.readouterr().out


async def test_the_formula_for_sizing_holds_in_each_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert await sizing.main(shapes=[(20, 100)]), capsys.readouterr().out
    assert capsys.readouterr().out.count("formula") == 6 * len(set(binaries()))


async def test_the_benchmark_of_the_export_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await export.main(4000, ("sqlite",))
    assert "sqlite" in capsys.readouterr().out


async def test_the_benchmark_of_schedules_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await schedules.main(20, 100, rounds=1, every_s=2)
    said = capsys.readouterr().out
    assert "20 schedules due at once" in said and "100 schedules every 2 s: Redis" in said


async def test_the_benchmark_of_explain_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await explain.main(8_000, ("sqlite",))
    assert "late --over 1s, a week, by topic" in capsys.readouterr().out


def test_the_benchmark_of_tokens_runs(capsys: pytest.CaptureFixture[str]) -> None:
    tokens.main(1, 0.2)
    assert "a token with topics and a rate" in capsys.readouterr().out


async def test_the_benchmark_of_journal_run_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await journal_run.main(0.2, 3_000, (1_000,), ("sqlite",))
    assert "backlog of 3,000 events" in capsys.readouterr().out


async def test_the_benchmark_of_restore_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await restore.main(2_000, ("sqlite",))
    assert "2,000 jobs in" in capsys.readouterr().out


async def test_the_benchmark_of_the_outbox_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await outbox.main(2_000, ("sqlite",))
    assert "2,000 rows" in capsys.readouterr().out


async def test_the_benchmark_of_tls_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await tls.main(1, 0.2)
    assert "with TLS" in capsys.readouterr().out


def test_the_costs_of_a_job_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    sizing.check_costs(1, 500)
    assert capsys.readouterr().out.count("a SET and a ZADD") == 4


async def test_the_benchmark_of_the_scripts_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await scripts.main(binary(), [1000], 1)
    assert "life" in capsys.readouterr().out


async def test_the_punctuality_benchmark_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await punctual.main(2)
    assert "the latest job, one of two stopped by SIGTERM" in capsys.readouterr().out


async def test_the_burst_benchmark_runs_and_an_idle_service_asks_little(capsys: pytest.CaptureFixture[str]) -> None:
    await burst.main(2000)
    idle = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("an idle service"))
    assert int(idle.split(":")[1].split()[0]) < 50


def test_the_benchmark_of_ten_million_jobs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    ten_million.main((1000, 2000), 0.1, 300, 0.2)
    assert "a fork, ms" in capsys.readouterr().out


async def test_the_benchmark_of_a_cluster_runs_and_an_idle_service_asks_little_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await cluster.main(0.02, 1)
    *_, idle = capsys.readouterr().out.splitlines()
    assert int(idle.split(":")[1].split()[0]) < 150


async def test_the_benchmark_of_walks_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await walk.main(2000)
    assert "p99 of pops times" in capsys.readouterr().out


async def test_the_benchmark_of_the_clients_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await clients.main(1, 100, 1)
    assert "python-async: SIGTERM in a stream" in capsys.readouterr().out


@pytest.fixture
def comparable() -> None:
    """Skips where what the comparison needs is missing."""
    try:
        compiler()
        program("beanstalkd")
    except MissingError as error:
        pytest.skip(str(error))


def compared(names: Sequence[str], groups: Sequence[str], out: Path | None) -> None:
    """Compare, and find a figure of us for each work, and nothing that went wrong."""
    systems = [load(name) for name in names]
    said = bench(systems, groups, TINY, out).data()
    assert said["missing"] == {}
    assert not any("ours" in words for words in said["words"].values()), said["words"]
    assert not any("failed" in why for words in said["words"].values() for why in words.values()), said["words"]


@pytest.mark.usefixtures("comparable")
def test_the_comparison_of_rates_and_costs_runs() -> None:
    rest = [group for group in GROUPS if group not in TIMED]
    compared(("ours", "ours-beanstalkd", "redis", "beanstalkd"), rest, None)


@pytest.mark.usefixtures("comparable")
def test_the_comparison_of_lateness_and_growth_runs_and_writes_its_report(tmp_path: Path) -> None:
    compared(("ours", "redis"), TIMED, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"bench.md", "bench.json", "lateness.svg", "growth.svg"}


@pytest.mark.usefixtures("comparable")
def test_the_comparison_with_other_stores_and_versions_of_ours_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "HOME", tmp_path)  # the files of the other version do not stay
    systems = [*(load(name) for name in ("ours", "ours-aof", "ours-valkey")), *versions(["HEAD"])[1:3]]
    report = bench(systems, ["popbatch", "crowd"], TINY, None)
    assert report.data()["missing"] == {}
    assert report.data()["words"] == {"crowd": {"ours@HEAD-default": NOT_MEASURED}}
    table = report.markdown().partition("### Jobs per second")[2]
    assert "|  | ours | ours-aof | ours-valkey | ours@HEAD | ours@HEAD-default |" in table


def output(program: str, *arguments: str) -> str:
    """The output of a program that needs a process of its own; fails if the program does."""
    command = [sys.executable, "-m", program, *arguments]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=230, cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    return ran.stdout


def test_the_benchmark_of_the_spark_writer_runs() -> None:
    assert "connector into a sink" in output("bench.spark", "1", "2000")


def test_the_benchmark_of_many_orders_finds_them_all() -> None:
    reported = output("bench.million", "3000", "local[2]")
    assert '"accepted": 3000' in reported and '"ok": 3000' in reported
