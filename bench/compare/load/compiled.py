"""The load generator: programs/load, in C, built with `cc` when it is first needed."""

from __future__ import annotations

import array
import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bench.compare import MissingError, WrongError, job_id
from bench.compare.install import HOME

SOURCES = Path(__file__).parents[1] / "programs" / "load"
FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra"]
_WRONG = 3  # its exit code for an answer that is not as it should be
_PATIENCE_S = 600


@dataclass(frozen=True)
class Load:
    """What a run of the generator did."""

    added: int
    seconds: float  # from the first request to the last answer
    cpu_us: float  # the generator's own
    got: list[str] = field(default_factory=list)  # ids of the jobs received
    at_ms: list[float] = field(default_factory=list)  # when each was received, since the epoch


def compiler() -> str:
    """The C compiler. Raises MissingError if there is none."""
    if found := shutil.which("cc"):
        return found
    raise MissingError("no C compiler (cc) to build the load generator with: apt-get install gcc libc6-dev")


@cache
def program() -> Path:
    """The generator, built if its sources or flags have changed. Raises MissingError without a compiler."""
    sources = sorted(SOURCES.iterdir())
    names = [str(each) for each in sources if each.suffix == ".c"]
    content = b"".join([" ".join(FLAGS).encode(), *(each.read_bytes() for each in sources)])
    built = HOME / f"load-{hashlib.sha256(content).hexdigest()[:16]}"
    if not built.exists():
        HOME.mkdir(exist_ok=True)
        new = built.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler(), *FLAGS, "-o", str(new), *names], check=True)
        new.rename(built)  # another process may be building it too
    return built


def load(dialect: str, address: str, **plan: int | str) -> Load:
    """Run the generator; main.c describes the plan. Raises WrongError if an answer was not as it should be."""
    command = [str(program()), dialect, address, *(f"{name}={number}" for name, number in plan.items())]
    done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=False)
    if done.returncode:
        problem = done.stderr.decode(errors="replace").strip()
        raise WrongError(problem) if done.returncode == _WRONG else RuntimeError(f"the load generator: {problem}")
    line, _, receipts = done.stdout.partition(b"\n")
    numbers = array.array("q", receipts)
    got, at_ms = [job_id(each) for each in numbers[::2]], [us / 1000 for us in numbers[1::2]]
    return Load(**json.loads(line), got=got, at_ms=at_ms)
