"""docs/upgrade.md behind a proxy: another version replaces the instances in turn, and goes again; no client notices."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.clients.gaps.programs import PROGRAMS
from tests.deploy.proxies.programs import Haproxy, Nginx
from tests.deploy.proxies.upgrade import STEPS, run
from tests.packaging.older import installed

# It installs packages from the registry, on a machine that runs other tests at the same time.
pytestmark = pytest.mark.timeout(900)

PROXY_OF = {"python": Nginx, "node": Haproxy, "php": Nginx}


async def test_instances_are_replaced_behind_proxies_and_each_job_is_delivered_in_time(tmp_path: Path) -> None:
    for missing in filter(None, (each.lacks() for each in PROGRAMS)):
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        programs = [(program, PROXY_OF[program.name]) for program in PROGRAMS]
        result = await run(programs, installed(tmp_path), Path(folder), every_s=0.02)
    for worker in result.workers:
        assert len(worker.ids) == worker.added > 0
        assert worker.early == []
        assert tuple(worker.gaps) == STEPS
