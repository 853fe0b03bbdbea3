"""Tests of the Node client alone: its log."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.conformance.participants import PARTICIPANTS, Participant
from tests.conformance.stage import Stage
from tests.kit.service import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAILING = f"""
import {{ Worker }} from '{ROOT}/clients/node/src/index.js';
const worker = new Worker(process.env.URL, {{ on_death: () => worker.stop() }});
function close(order) {{
  throw new RangeError(`order ${{order}} is not ours`);
}}
worker.job('failing', async (job) => {{ close(job.body.n); }});
await worker.run();
"""


@pytest.fixture(scope="module", params=[each for each in PARTICIPANTS if each.name == "node"], ids=["node"])
def participant(request: pytest.FixtureRequest) -> Participant:
    chosen: Participant = request.param
    if missing := chosen.lacks():
        pytest.skip(missing)
    return chosen


async def test_a_failure_is_one_line_of_json_that_names_the_place(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "program.mjs"
    file.write_text(FAILING)
    body = {"n": 1, "card": "4111 1111"}
    assert (await stage.client.ask("add", topic="failing", id="failing:1", tries=1, body=body))["success"]
    node = await asyncio.create_subprocess_exec(
        *("node", str(file)), stderr=asyncio.subprocess.PIPE, env=os.environ | {"URL": stage.service.url}
    )
    async with asyncio.timeout(30):
        _, said = await node.communicate()
    assert node.returncode == 0
    log = [json.loads(line) for line in said.splitlines()]
    (failed,) = [line for line in log if line["message"] == "job.failed"]
    line = 1 + FAILING.split("\n").index("  throw new RangeError(`order ${order} is not ours`);")
    assert (
        failed.items()
        >= {
            "level": "error",
            "topic": "failing",
            "id": "failing:1",
            "attempt": 1,
            "reason": "RangeError: order 1 is not ours",
            "at": f"{tmp_path}/program.mjs:{line}:9",
        }.items()
    )
    assert all(each["time"].endswith("Z") for each in log)
    assert [each["message"] for each in log] == [
        *("worker.started", "job.failed", "job.died", "worker.stopping", "worker.stopped")
    ]
    assert "4111 1111" not in json.dumps(log)
