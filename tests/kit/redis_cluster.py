"""A Redis Cluster of real nodes, for tests in which a master fails or slots move under load."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import hiredis
from redis.crc import key_slot

from tests.kit.ports import free_ports
from tests.kit.redis_network import Network
from tests.kit.redis_node import EVERYBODY, HOST, Access, RedisNode, Tls, until_servers

SLOTS = 1 << 14
MASTERS = 3
_MOVE_MS = 5000
_FAILOVER_S = 8.0
_TRIES = 3


def slot_of(key: str) -> int:
    """The slot of a key: of its hash tag, if it has one."""
    slot: int = key_slot(key.encode())
    return slot


class ClusterSet:
    """`async with`: three masters with a third of the slots each, and `replicas` of each. `options` are lines for the
    configuration of all nodes.

    Without them nothing is on disk: a master that is killed and restarted before its replica took over comes back
    empty, so `await failed_over(it)` between the two. And let other masters fail, or about four times `timeout_ms`
    pass, before the same pair of nodes fails over again: in Redis 7.0 a node that won an election recently believes
    at the next one that it has already won, and no other node does. `network` connects the nodes. With `tls`
    they speak nothing else.
    """

    def __init__(
        self,
        *options: str,
        access: Access = EVERYBODY,
        replicas: int = 1,
        timeout_ms: int = 1500,
        network: Network | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.network = network
        self._tls = tls
        self.nodes: list[RedisNode] = []
        self._options = options
        self._access = access
        self._replicas = replicas
        self.down_after_s = timeout_ms / 1000
        self._ids: dict[RedisNode, str] = {}

    @property
    def url(self) -> str:
        return self.url_for(self._access)

    def url_for(self, access: Access) -> str:
        """The URL with the credentials of another user."""
        hosts = ",".join(node.address for node in self.nodes[:MASTERS])
        scheme, parameters = ("rediss", self._tls.in_url) if self._tls else ("redis", "")
        return f"{scheme}+cluster://{access.in_url}{hosts}{parameters}"

    async def __aenter__(self) -> Self:
        # Not pytest's own folder: after a killed test run that one stays.
        self._folder = tempfile.TemporaryDirectory(prefix="jq-cluster-")
        try:
            await self._start(Path(self._folder.name))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        for node in self.nodes:
            node.kill()
        if self.network:
            await self.network.close()
        self._folder.cleanup()

    async def _start(self, folder: Path) -> None:
        """Introduce every node to every other, so that none waits for gossip."""
        number = MASTERS * (1 + self._replicas)
        ports = free_ports(2 * number)
        for port, bus in zip(ports[:number], ports[number:], strict=True):
            host = await self.network.add(port, bus) if self.network else HOST
            lines = [*self._lines(bus), *self._options]
            self.nodes.append(RedisNode(folder / str(port), port, lines, self._access, host=host, tls=self._tls))
        await asyncio.gather(*(node.start() for node in self.nodes))
        for node in self.nodes:
            self._ids[node] = await node.ask("CLUSTER", "MYID")
        for place, node in enumerate(self.nodes[:MASTERS]):
            await node.ask("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
            first, end = SLOTS * place // MASTERS, SLOTS * (place + 1) // MASTERS
            await node.ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        pairs = [(node, port, bus) for node in self.nodes for port, bus in zip(ports, ports[number:], strict=False)]
        await asyncio.gather(*(node.ask("CLUSTER", "MEET", HOST, *to) for node, *to in pairs if to[0] != node.port))
        replicas = enumerate(self.nodes[MASTERS:])
        await asyncio.gather(*(self._become_replica(node, self.nodes[place % MASTERS]) for place, node in replicas))
        await self.settled()

    def _lines(self, bus: int) -> list[str]:
        return [
            *("save ''", "cluster-enabled yes", f"cluster-port {bus}", f"cluster-announce-ip {HOST}"),
            f"cluster-node-timeout {int(self.down_after_s * 1000)}",
            *("cluster-require-full-coverage no", "cluster-replica-validity-factor 0", "repl-diskless-sync-delay 0"),
        ]

    async def _become_replica(self, node: RedisNode, master: RedisNode) -> None:
        async def taken() -> bool:  # refused until it knows the master
            return bool(await node.ask("CLUSTER", "REPLICATE", self._ids[master]) == "OK")

        await until_servers(taken)

    async def view(self) -> list[list[str]]:
        """CLUSTER NODES as a live node reports it: the words of each line."""
        for node in self.nodes:
            if node.alive:
                try:
                    return [line.split() for line in (await node.ask("CLUSTER", "NODES", within_s=1)).splitlines()]
                except (OSError, hiredis.ReplyError):  # frozen, say
                    continue
        raise OSError("no node answers")

    def _node(self, node_id: str) -> RedisNode:
        return next(node for node, own in self._ids.items() if own == node_id)

    async def masters(self) -> list[RedisNode]:
        """The nodes that have slots."""
        return [self._node(words[0]) for words in await self.view() if "master" in words[2] and words[8:]]

    async def owner(self, slot: int) -> RedisNode:
        """The master of a slot, by the node's own claim: what others report may be stale for a moment after a move."""
        claims: list[tuple[int, RedisNode]] = []

        async def is_claimed() -> bool:  # not at once, where its node stalls or its replica just takes over
            claims[:] = await self._claims(slot)
            return bool(claims)

        await until_servers(is_claimed)
        return max(claims, key=lambda claim: claim[0])[1]  # a node that was frozen may not know its successor yet

    async def _claims(self, slot: int) -> list[tuple[int, RedisNode]]:
        """The nodes that say they have a slot, each after its epoch; without those that do not answer."""
        alive = [node for node in self.nodes if node.alive]
        told = await asyncio.gather(*(_of_itself(node) for node in alive), return_exceptions=True)
        return [
            (int(words[6]), node)
            for node, words in zip(alive, told, strict=True)
            if isinstance(words, list) and any(_covers(part, slot) for part in words[8:])
        ]

    async def some_master(self, turn: int) -> RedisNode:
        """In turn the owners of the first, second and third part of the slots."""
        return await self.owner(SLOTS * (turn % MASTERS) // MASTERS)

    async def master_of(self, key: str) -> RedisNode:
        return await self.owner(slot_of(key))

    async def slots_of(self, master: RedisNode) -> tuple[int, int] | None:
        """Its first and last slot; None if it has none."""
        for words in await self.view():
            if words[0] == self._ids[master] and words[8:]:
                ends = [int(end) for part in words[8:] if part[0] != "[" for end in part.split("-")]
                return min(ends), max(ends)
        return None

    async def replicas(self) -> list[RedisNode]:
        """All live replicas."""
        masters = await self.masters()
        return [node for node in self.nodes if node.alive and node not in masters]

    async def replicas_of(self, master: RedisNode) -> list[RedisNode]:
        """Its live replicas."""
        own = [self._node(words[0]) for words in await self.view() if words[3] == self._ids[master]]
        return [node for node in own if node.alive]

    async def failed_over(self, old: RedisNode) -> None:
        """Wait until a replica has taken over the slots of a killed or frozen master, and all others know it."""
        await until_servers(lambda: self._is_replaced(old))

    async def _is_replaced(self, old: RedisNode) -> bool:
        return all([await self._sees_replaced(node, old) for node in self.nodes if node.alive and node is not old])

    async def _sees_replaced(self, node: RedisNode, old: RedisNode) -> bool:
        ranges = await node.ask("CLUSTER", "SLOTS")
        names = {entry[2][2] for entry in ranges}
        return self._ids[old] not in names and sum(end - first + 1 for first, end, *_ in ranges) == SLOTS

    async def is_alone(self, node: RedisNode) -> bool:
        """Whether it has noticed that it is cut off from most masters, and refuses commands."""
        return "cluster_state:fail" in await node.ask("CLUSTER", "INFO")

    async def failover(self, master: RedisNode) -> RedisNode:
        """CLUSTER FAILOVER, which loses nothing: one of its replicas becomes the master, and is returned. On a busy
        machine Redis silently gives up after 5 s."""
        replica = (await self.replicas_of(master))[0]
        for _ in range(_TRIES):
            with contextlib.suppress(hiredis.ReplyError):  # it has already become the master
                await replica.ask("CLUSTER", "FAILOVER")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FAILOVER_S):
                    await self.failed_over(master)
                    return replica
        raise TimeoutError(f"{master.address} was asked {_TRIES} times to step down")

    async def settled(self) -> None:
        """Wait until each live node reports the cluster healthy and knows all others, and each replica has all data."""
        await until_servers(self._is_settled)

    async def _is_settled(self) -> bool:
        alive = [node for node in self.nodes if node.alive]
        states = await asyncio.gather(*(node.ask("CLUSTER", "INFO") for node in alive))
        if not all("cluster_state:ok" in state and f"cluster_slots_ok:{SLOTS}" in state for state in states):
            return False
        known = await asyncio.gather(*(self._knows_all(node) for node in alive))
        return all(known) and await self._is_replicated()

    async def _knows_all(self, node: RedisNode) -> bool:
        lines = [line.split() for line in (await node.ask("CLUSTER", "NODES")).splitlines()]
        good = {
            words[0] for words in lines if words[2].split(",")[-1] in ("master", "slave") and words[7] == "connected"
        }
        return good >= {own for node, own in self._ids.items() if node.alive}

    async def _is_replicated(self) -> bool:
        masters = [(words[0], words[3]) for words in await self.view() if words[3] != "-"]
        pairs = [(self._node(own), self._node(master)) for own, master in masters]
        return all(await asyncio.gather(*(node.has_all_of(master) for node, master in pairs if node.alive)))

    async def move_slot(self, slot: int, to: RedisNode, batch: int = 100) -> int:
        """Move a slot as an operator's tool does, `batch` keys at a time; returns the number of its keys.

        During the move the slot's keys are on both nodes, and a script that names keys of both is refused.
        """
        old = await self.owner(slot)
        if old is to:
            return 0
        await to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self._ids[old])
        await old.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self._ids[to])
        moved = 0
        while keys := await old.ask("CLUSTER", "GETKEYSINSLOT", slot, batch):
            await self._migrate(keys, old, to)
            moved += len(keys)
        # The new owner first: otherwise the old one would send clients to a node that does not know yet.
        others = [node for node in await self.masters() if node not in (old, to)]
        for node in (to, old, *others):
            await node.ask("CLUSTER", "SETSLOT", slot, "NODE", self._ids[to])
        await until_servers(lambda: self._is_agreed(slot, to))
        return moved

    async def _is_agreed(self, slot: int, owner: RedisNode) -> bool:
        """Whether all nodes know the owner of a slot, and since which epoch.

        If the slot moved on before that, the next owner could take an epoch that is no higher, lose the slot to stale
        gossip about the previous owner, and drop its keys: no node would have them.
        """
        epoch = (await _of_itself(owner))[6]
        views = await asyncio.gather(*(node.ask("CLUSTER", "NODES") for node in self.nodes if node.alive))
        return all(self._shows(view, owner, slot, epoch) for view in views)

    def _shows(self, view: str, owner: RedisNode, slot: int, epoch: str) -> bool:
        words = next(words for line in view.splitlines() if (words := line.split())[0] == self._ids[owner])
        return words[6] == epoch and any(_covers(part, slot) for part in words[8:])

    async def _migrate(self, keys: Sequence[str], old: RedisNode, to: RedisNode) -> None:
        words: list[Any] = ["MIGRATE", HOST, to.port, "", 0, _MOVE_MS]
        if self._access.password:
            words += ["AUTH2", self._access.user or "default", self._access.password]
        await old.ask(*words, "KEYS", *keys)

    async def move_back_and_forth(self, key: str, batch: int = 100) -> int:
        """Move the slot of a key to the next master and back; returns how many keys were moved."""
        slot = slot_of(key)
        home = await self.owner(slot)
        masters = await self.masters()
        away = masters[(masters.index(home) + 1) % len(masters)]
        return await self.move_slot(slot, away, batch) + await self.move_slot(slot, home, batch)


async def _of_itself(node: RedisNode) -> list[str]:
    """The words of the node's own line of CLUSTER NODES."""
    lines = (await node.ask("CLUSTER", "NODES", within_s=1)).splitlines()
    return next(words for line in lines if "myself" in (words := line.split())[2])


def _covers(part: str, slot: int) -> bool:
    """Whether a slot is in one of the last words of a line of CLUSTER NODES: `5461-10922` or `7`."""
    if part.startswith("["):  # a slot that is being moved
        return False
    first, _, last = part.partition("-")
    return int(first) <= slot <= int(last or first)
