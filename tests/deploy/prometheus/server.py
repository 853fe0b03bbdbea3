"""A real Prometheus with deploy/prometheus/scrape.yaml, whose targets and intervals are those of the test."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.deploy.programs import program
from tests.deploy.prometheus.expressions import FOLDER
from tests.kit.ports import free_port
from tests.kit.waiting import until


class Prometheus:
    """A running server, and its HTTP API."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def get(self, path: str, **parameters: str) -> Any:
        """`data` of an answer of the API."""
        async with self._session.get(f"{self._url}/api/v1/{path}", params=parameters) as answer:
            said = await answer.json()
        assert said["status"] == "success", said
        return said["data"]

    async def query(self, expression: str) -> list[Any]:
        """The samples that an expression has now."""
        result: list[Any] = (await self.get("query", query=expression))["result"]
        return result

    async def is_ready(self) -> bool:
        """Whether it answers."""
        with contextlib.suppress(aiohttp.ClientError):
            async with self._session.get(f"{self._url}/-/ready") as answer:
                return answer.status == 200
        return False


def configured(
    folder: Path,
    services: list[str],
    exporter: str,
    token: str,
    journal: str = "127.0.0.1:9",
    outbox: str = "127.0.0.1:9",
) -> Path:
    """The files of deploy/prometheus in `folder`, as an operator changes them, and in a hurry; the configuration."""
    for file in FOLDER.iterdir():
        shutil.copy(file, folder)
    (folder / "prometheus.token").write_text(token)
    config = folder / "scrape.yaml"
    text = config.read_text()
    changes = {
        '["10.0.0.11:8000", "10.0.0.12:8000"]': f"[{', '.join(services)}]",
        '["10.0.0.11:9200"]': f"[{journal}]",
        '["10.0.0.11:9201"]': f"[{outbox}]",
        '["10.0.0.21:9121"]': f"[{exporter}]",
        "scrape_interval: 15s": "scrape_interval: 1s",
        "evaluation_interval: 1m": "evaluation_interval: 1s",
        "scrape_timeout: 10s": "scrape_timeout: 1s",
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    config.write_text(text)
    rules = folder / "rules.yaml"
    rules.write_text(rules.read_text().replace("interval: 1m", "interval: 1s"))
    return config


@contextlib.asynccontextmanager
async def prometheus(config: Path) -> AsyncIterator[Prometheus]:
    """Run it with a configuration and an empty database beside that."""
    address = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        program("prometheus"),
        *(f"--config.file={config}", f"--web.listen-address={address}", f"--storage.tsdb.path={config.parent}/data"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as session:
            server = Prometheus(f"http://{address}", session)
            await until(server.is_ready, within_s=30, every_s=0.05)
            yield server
    finally:
        process.kill()
        await process.wait()
