"""Services that ask for tokens: real processes over one Redis, and what makes their tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from buckets.access import Tokens
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.access.issuing import Issued, Issuing
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

SETTINGS = 'access = "tokens"\nopen_paths = ["/metrics"]\n'


class Guarded:
    """Services that ask for tokens."""

    def __init__(
        self,
        services: list[ServiceProcess],
        redis_url: str,
        redis: Redis,
        pool: Pool,
        folder: Path,
        session: aiohttp.ClientSession,
    ) -> None:
        self.services = services
        self.service = services[0]
        self.url = self.service.url
        self.redis = redis
        self.redis_url = redis_url
        self.issuing = Issuing(Tokens(pool))
        self.folder = folder
        self.file = folder / "token"
        """The text of the last token that was made."""
        self._session = session
        self._names = 0

    @property
    def log(self) -> str:
        """What the services have logged."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("service-*.log")))

    async def token(self, *rights: str, **fields: Any) -> Issued:
        """A new token, which all services know."""
        self._names += 1
        fields = {"name": f"token-{self._names}", "rights": [*rights], **fields}
        issued = await self.issuing.create(fields, "the test")
        self.file.write_text(issued.token.text)
        for service in self.services:
            await self.until_known(issued, service.url)
        return issued

    async def until_known(self, issued: Issued, url: str = "") -> None:
        """Wait until a service takes a token for valid."""

        async def known() -> bool:
            status, _ = await self.ask(issued, {"command": "whoami"}, url)
            return status != HTTPStatus.UNAUTHORIZED

        await until(known)

    async def ask(self, issued: Issued | None, commands: Any, url: str = "", **headers: str) -> tuple[int, Any]:
        """Status and answer of a request that shows a token, or none."""
        if issued is not None:
            headers = bearer(issued) | headers
        async with self._session.post(f"{url or self.url}/command", json=commands, headers=headers) as answer:
            return answer.status, await answer.json()


def bearer(issued: Issued) -> dict[str, str]:
    """The header that shows a token."""
    return {"Authorization": f"Bearer {issued.token.text}"}


@asynccontextmanager
async def guarded(
    folder: Path,
    *,
    settings: str = "",
    instances: int = 1,
    workers: int = 1,
    redis: tuple[str, ...] = (),
    usual: str = SETTINGS,
) -> AsyncIterator[Guarded]:
    """Services over a Redis of their own. `settings`: lines for each, beside the `usual`; `redis`: flags of the
    Redis."""
    config = folder / "jobqueue.toml"
    config.write_text(usual + settings)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(RedisServer(folder, *redis))
        flags = ("--redis", server.url, "--config", str(config))
        services = [
            await stack.enter_async_context(
                ServiceProcess(*flags, log=folder / f"service-{number}.log", workers=workers)
            )
            for number in range(instances)
        ]
        client = Redis(server.url)
        stack.push_async_callback(client.close)
        pool = await Pool.open(client)
        stack.push_async_callback(pool.close)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Guarded(services, server.url, client, pool, folder, session)
