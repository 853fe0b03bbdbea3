"""How many workers run by default."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jobqueue.errors import SettingsError
from jobqueue.settings import MOST_WORKERS
from jobqueue.workers import cores


@pytest.mark.parametrize(("number", "workers"), [(1, 1), (2, 1), (3, 2), (4, 3), (8, 7), (500, MOST_WORKERS)])
def test_redis_has_a_core_of_its_own_where_there_are_two_or_more(
    number: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "usable", lambda: number)
    assert cores.workers_for(0) == workers
    assert cores.workers_for(5) == 5


def test_elsewhere_than_on_linux_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cores.workers_for(0) == cores.workers_for(1) == 1
    with pytest.raises(SettingsError, match="only Linux"):
        cores.workers_for(2)


def test_a_quota_of_the_cgroup_or_of_one_around_it_counts(
    subtests: pytest.Subtests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[dict[str, str], int]] = [
        ({}, 8),
        ({"": "max 100000"}, 8),
        ({"": "300000 100000"}, 3),
        ({"a": "250000 100000"}, 2),
        ({"a/b": "50000 100000"}, 1),
        ({"a": "200000 100000", "a/b": "400000 100000"}, 2),
        ({"a/b": "9900000 100000"}, 8),
        ({"a/b": "garbage"}, 8),
        ({"a/c": "100000 100000"}, 8),  # another's
    ]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for number, (quotas, usable) in enumerate(cases):
        with subtests.test(quotas=quotas, usable=usable):
            folder = tmp_path / str(number)
            for name in ("a/b", "a/c"):
                (folder / "cgroup" / name).mkdir(parents=True)
            for name, quota in quotas.items():
                (folder / "cgroup" / name / "cpu.max").write_text(quota + "\n")
            own = folder / "own"
            own.write_text("1:name=systemd:/x\n0::/a/b\n")
            assert cores.usable(folder / "cgroup", own) == usable


def test_without_cgroups_the_cores_count_that_the_process_may_run_on(tmp_path: Path) -> None:
    assert cores.usable(tmp_path, tmp_path / "nothing") == len(os.sched_getaffinity(0))
