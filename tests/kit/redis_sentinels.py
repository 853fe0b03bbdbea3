"""A master, two replicas and three Sentinels, all real, for tests in which a master fails."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Self

import hiredis

from tests.kit.ports import free_ports
from tests.kit.redis_network import Network
from tests.kit.redis_node import EVERYBODY, HOST, Access, RedisNode, Tls, until_servers

NAME = "jq-main"
_REPLICAS = 2
_SENTINELS = 3
_QUORUM = 2


class SentinelSet:
    """`async with`. `options` are lines for the configuration of the three data servers, as `appendonly yes`.

    Without them nothing is on disk: a master that is killed and restarted before another one took over comes back
    empty, and empties its replicas, so `await failed_over(it)` between the two. `network` connects the servers.
    With `tls` they and the Sentinels speak nothing else.
    """

    def __init__(
        self,
        *options: str,
        access: Access = EVERYBODY,
        down_after_ms: int = 1000,
        network: Network | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.network = network
        self._tls = tls
        self.servers: list[RedisNode] = []
        self.sentinels: list[RedisNode] = []
        self._options = options
        self._access = access
        self.down_after_s = down_after_ms / 1000

    @property
    def url(self) -> str:
        return self.url_for(self._access)

    def url_for(self, access: Access) -> str:
        """The URL with the credentials of another user."""
        hosts = ",".join(sentinel.address for sentinel in self.sentinels)
        scheme, parameters = ("rediss", self._tls.in_url) if self._tls else ("redis", "")
        return f"{scheme}+sentinel://{access.in_url}{hosts}/{NAME}{parameters}"

    async def __aenter__(self) -> Self:
        # Not pytest's own folder: after a killed test run that one stays.
        self._folder = tempfile.TemporaryDirectory(prefix="jq-sentinels-")
        try:
            await self._start(Path(self._folder.name))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        for node in (*self.sentinels, *self.servers):
            node.kill()
        if self.network:
            await self.network.close()
        self._folder.cleanup()

    async def _start(self, folder: Path) -> None:
        ports = free_ports(1 + _REPLICAS + _SENTINELS)
        main, watching = ports[: 1 + _REPLICAS], ports[1 + _REPLICAS :]
        for port in main:
            lines = ["save ''", "repl-diskless-sync-delay 0", f"replica-announce-ip {HOST}", *self._options]
            lines += [f"replicaof {HOST} {main[0]}"] if port != main[0] else []
            host = await self._host(port)
            self.servers.append(RedisNode(folder / str(port), port, lines, self._access, host=host, tls=self._tls))
        await asyncio.gather(*(server.start() for server in self.servers))
        await until_servers(lambda: self._follows(self.servers[0]))
        for port in watching:
            lines, host = self._sentinel(port, main, watching), await self._host(port)
            self.sentinels.append(RedisNode(folder / str(port), port, lines, sentinel=True, host=host, tls=self._tls))
        await asyncio.gather(*(self.start_sentinel(sentinel) for sentinel in self.sentinels))
        await self.settled()

    async def _host(self, port: int) -> str:
        return await self.network.add(port) if self.network else HOST

    def _sentinel(self, own: int, servers: list[int], sentinels: list[int]) -> list[str]:
        """Its configuration, as it would write it itself once it had found the others."""
        name = f"sentinel %s {NAME}"
        lines = [
            f"sentinel myid {_run_id(own)}",
            f"sentinel announce-ip {HOST}",
            f"{name % 'monitor'} {HOST} {servers[0]} {_QUORUM}",
        ]
        lines += [
            f"{name % 'down-after-milliseconds'} {int(self.down_after_s * 1000)}",
            f"{name % 'failover-timeout'} 3000",
        ]
        lines += [f"{name % 'auth-pass'} {self._access.password}"] if self._access.password else []
        lines += [f"{name % 'auth-user'} {self._access.user}"] if self._access.user else []
        lines += [f"{name % 'known-replica'} {HOST} {port}" for port in servers[1:]]
        others = (port for port in sentinels if port != own)
        return lines + [f"{name % 'known-sentinel'} {HOST} {port} {_run_id(port)}" for port in others]

    async def start_sentinel(self, sentinel: RedisNode) -> None:
        """Start or restart it."""
        await sentinel.start()
        # How often it polls servers and publishes to the others. The defaults are 10 s and 2 s, and an old master that
        # is back becomes a replica only after four times the latter: tests would spend most of their time waiting.
        await sentinel.ask("SENTINEL", "DEBUG", "info-period", 500, "publish-period", 500)

    async def master(self) -> RedisNode:
        """The master, as most of the live Sentinels see it."""
        asked = [sentinel for sentinel in self.sentinels if sentinel.alive]
        told = await asyncio.gather(*(_named(sentinel) for sentinel in asked), return_exceptions=True)
        ports = [port for port in told if isinstance(port, int)]
        if not ports:
            raise OSError("no Sentinel answers")
        return self._server(max(ports, key=ports.count))

    async def replicas(self) -> list[RedisNode]:
        """The live servers that are not the master."""
        master = await self.master()
        return [server for server in self.servers if server.alive and server is not master]

    def _server(self, port: int) -> RedisNode:
        return next(server for server in self.servers if server.port == port)

    async def failed_over(self, old: RedisNode) -> RedisNode:
        """Wait until a server other than `old` is the master and the third, if alive, replicates it; returns it.

        Until then a write to the old one may reach the third, count as replicated, and be lost.
        """

        async def another() -> bool:
            new = await self.master()
            return new is not old and await self._follows(new, but=old)

        await until_servers(another)
        return await self.master()

    @property
    def nodes(self) -> list[RedisNode]:
        """Those that hold data."""
        return self.servers

    async def slots_of(self, master: RedisNode) -> tuple[int, int] | None:
        """None; only the masters of a Cluster have slots."""
        return None

    async def some_master(self, turn: int) -> RedisNode:
        """The master; a Cluster has several, and gives each its turn."""
        return await self.master()

    async def failover(self, old: RedisNode | None = None) -> RedisNode:
        """SENTINEL FAILOVER; returns the new master. What the old one had not replicated yet is lost."""
        old = old or await self.master()
        await until_servers(lambda: self._ordered(old))
        return await self.failed_over(old)

    async def _ordered(self, old: RedisNode) -> bool:
        if await self.master() is not old:
            return True
        asked = next(sentinel for sentinel in self.sentinels if sentinel.alive)
        try:
            return bool(await asked.ask("SENTINEL", "FAILOVER", NAME) == "OK")
        except hiredis.ReplyError as error:
            return str(error).startswith("INPROG")

    async def settled(self) -> None:
        """Wait until all live servers follow one master, have all of its data, and the Sentinels see that they do."""
        await until_servers(self._is_settled)

    async def _is_settled(self) -> bool:
        master = await self.master()
        if not await self._follows(master):
            return False
        seen = await asyncio.gather(*(self._sees(each, master) for each in self.sentinels if each.alive))
        return all(seen)

    async def _follows(self, master: RedisNode, but: RedisNode | None = None) -> bool:
        """Whether all other live servers, `but` this one, are replicas that have all it had when asked."""
        others = [server for server in self.servers if server.alive and server not in (master, but)]
        return all(await asyncio.gather(*(server.has_all_of(master) for server in others)))

    async def _sees(self, sentinel: RedisNode, master: RedisNode) -> bool:
        told = _pairs(await sentinel.ask("SENTINEL", "MASTER", NAME))
        if (told["port"], told["flags"]) != (
            str(master.port),
            "master",
        ):  # else it is down, or failing over
            return False
        await sentinel.ask("SENTINEL", "CKQUORUM", NAME)
        replicas = [_pairs(each) for each in await sentinel.ask("SENTINEL", "REPLICAS", NAME)]
        good = {
            int(each["port"]) for each in replicas if each["flags"] == "slave" and each["master-link-status"] == "ok"
        }
        return good >= {server.port for server in self.servers if server.alive and server is not master}


async def _named(sentinel: RedisNode) -> int:
    """The port of the master, according to a Sentinel."""
    return int((await sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME, within_s=1))[1])


def _run_id(port: int) -> str:
    return f"{port:040x}"


def _pairs(flat: list[Any]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
