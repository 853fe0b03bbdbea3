"""Each client's worker goes on through the other instance when one of two stops or is killed, and nothing is lost."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.clients.gaps.programs import PROGRAMS, Program
from tests.clients.gaps.scenario import run


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
async def test_jobs_go_on_through_the_other_instance_and_none_is_lost(program: Program) -> None:
    if missing := program.lacks():
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        result = await run(program, Path(folder))
    assert result.unfinished == 0
    assert len(result.received.ids) == result.added > 0
    assert {way: len(gaps) for way, gaps in result.gaps.items()} == {"none": 2, "stop": 2, "kill": 2}
