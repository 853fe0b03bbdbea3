"""wrk, with the script for our protocol."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.bench.compare import WrongError
from tests.bench.compare.install import program

_SCRIPT = Path(__file__).parents[1] / "programs" / "command.lua"
_PATIENCE_S = 120


class Result(NamedTuple):
    jobs: int
    seconds: float


def wrk(port: int, connections: int, work: str, amount: float, first: int, topic: str) -> Result:
    """Run a work of programs/command.lua, which describes them. Raises WrongError if an answer was not as it should
    be."""
    path, environment = program("wrk")
    command = [path, "-t1", f"-c{connections}", f"-d{_PATIENCE_S}s", "-s", str(_SCRIPT), f"http://127.0.0.1:{port}"]
    command += ["--", work, str(amount), str(first), topic]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=2 * _PATIENCE_S, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"jobs"')]
    if not lines:
        raise WrongError(f"wrk came to no end: {done.stdout[-500:]}{done.stderr[-500:]}")
    said = json.loads(lines[0])
    if said["wrong"]:
        raise WrongError(f"{said['wrong']} of {said['jobs']} answers were wrong")
    return Result(said["jobs"], said["seconds"])
