"""The counterpart of `asked`: a program that lives as long as its system and does what it is asked."""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any

_PATIENCE_S = 120


class Program:
    """A running program; takes one request at a time. Its stderr goes to `log`."""

    def __init__(self, command: list[str], log: Path, **variables: str) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **variables},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, work: str, **options: Any) -> dict[str, Any]:
        self.send(work, **options)
        return self.answer()

    def send(self, work: str, **options: Any) -> None:
        """Send a request without waiting; call `answer` next."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"work": work, **options}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The answer. Raises RuntimeError if the program ended, or is silent for too long."""
        assert self._process.stdout is not None
        heard, _, _ = select.select([self._process.stdout], [], [], _PATIENCE_S)
        line = self._process.stdout.readline() if heard else b""
        if not line:
            raise RuntimeError(f"no answer: {self._log.read_text()[-500:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
