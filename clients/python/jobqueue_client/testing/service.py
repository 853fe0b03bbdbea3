"""A test service in a process of its own, for as long as tests need it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import queue
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

_START_S = 30.0
_STOP_S = 10.0
_HINT = (
    "install the service where the tests run, or start `jobqueue serve --test` elsewhere and set JOBQUEUE_TEST_URL to"
    " its address"
)


class Service:
    """Runs `jobqueue serve --test`: `with Service() as service`, then `service.url`."""

    def __init__(self, *flags: str) -> None:
        """`flags`: more flags of `jobqueue serve`, such as `--config`. Raises RuntimeError if jobqueue is missing."""
        self._command = [*_program(), "serve", "--test", "--log-format", "json", *flags]
        self._process: subprocess.Popen[str] | None = None
        self._last_lines: deque[str] = deque(maxlen=20)
        self._started: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.url = ""
        """The address at which the service listens, or empty before it does."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the service and wait until it listens. Raises RuntimeError with the end of its log if it does not."""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read_log, daemon=True).start()
        with contextlib.suppress(queue.Empty):
            self.url = self._started.get(timeout=_START_S)
        if not self.url:
            self.stop()
            raise RuntimeError(f"{' '.join(self._command)} did not start:\n{''.join(self._last_lines)}")

    def stop(self) -> None:
        """Stop the service; its data is lost."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _read_log(self) -> None:
        """Find the address in the service's log, and keep reading, so that the service never blocks on a full pipe."""
        assert self._process and self._process.stderr
        with self._process.stderr as lines:
            for line in lines:
                self._last_lines.append(line)
                event = _read(line)
                if event.get("event") == "service.started":
                    self._started.put(event["url"])
        self._started.put("")  # the service has ended


def _read(line: str) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _program() -> list[str]:
    if importlib.util.find_spec("jobqueue"):
        return [sys.executable, "-m", "jobqueue"]
    found = shutil.which("jobqueue")
    if found is None:
        raise RuntimeError(f"there is no `jobqueue` to run: {_HINT}")
    return [found]
