"""The service in a forked process: otherwise hundreds of kills would mean hundreds of Python starts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kit.forked import Forked
from tests.kit.ports import free_port


class ForkedService:
    """A service that is restarted again and again on one port. `virtual_topics`, `chosen`: its settings by name."""

    def __init__(self, log: Path, *, virtual_topics: Mapping[str, Sequence[str]], **chosen: Any) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        self._config = log.with_name("jobqueue.toml")
        own = [f"{name} = {json.dumps(value)}" for name, value in (chosen | {"port": port, "workers": 1}).items()]
        virtual = [f"{json.dumps(name)} = {json.dumps(topics)}" for name, topics in virtual_topics.items()]
        self._config.write_text("\n".join([*own, "[virtual_topics]", *virtual]))
        self._process: Forked | None = None

    def start(self) -> None:
        """Start it without waiting for it to be ready."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}
        arguments = ["serve", "--config", str(self._config), "--log-format", "text"]
        with self.log.open("ab") as output:
            self._process = Forked(arguments, environment, stdout=output, stderr=output)

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process:
            self._process.send_signal(signal.SIGKILL)

    async def ended(self) -> None:
        """Wait until it has ended, by itself or killed."""
        assert self._process
        await self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM."""
        assert self._process
        self._process.send_signal(signal.SIGTERM)
