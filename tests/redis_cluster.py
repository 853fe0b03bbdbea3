"""A Redis Cluster of real nodes, for tests that let a master fail or move slots under load."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import hiredis
from redis.crc import key_slot

from tests.ports import free_ports
from tests.redis_network import Network
from tests.redis_node import EVERYBODY, HOST, Access, RedisNode, until

SLOTS = 1 << 14
MASTERS = 3
_MOVE_MS = 5000
_FAILOVER_S = 8.0
_TRIES = 3


def slot_of(key: str) -> int:
    """The slot of a key: of what stands in its braces, if it has some."""
    slot: int = key_slot(key.encode())
    return slot


class ClusterSet:
    """`async with`: three masters with a third of the slots each, and `replicas` of each. `options` are lines for the
    configuration of all nodes.

    Nothing is on disk without them: a master that is killed and started before its replica took over comes back
    empty. `await failed_over(it)` between the two. And let other masters fail, or some four times `timeout_ms` pass,
    before the same pair of nodes fails over again: in Redis 7.0 a node that won an election of late believes at the
    next one that it has won already, and nobody else does. `network`: between them.
    """

    def __init__(
        self,
        *options: str,
        access: Access = EVERYBODY,
        replicas: int = 1,
        timeout_ms: int = 1500,
        network: Network | None = None,
    ) -> None:
        self.network = network
        self.nodes: list[RedisNode] = []
        self._options = options
        self._access = access
        self._replicas = replicas
        self.down_after_s = timeout_ms / 1000
        self._ids: dict[RedisNode, str] = {}

    @property
    def url(self) -> str:
        hosts = ",".join(node.address for node in self.nodes[:MASTERS])
        return f"redis+cluster://{self._access.in_url}{hosts}"

    async def __aenter__(self) -> Self:
        # Not pytest's own folder: that of a killed test run stays.
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
        """Each node is introduced to each, so that nobody waits for gossip."""
        number = MASTERS * (1 + self._replicas)
        ports = free_ports(2 * number)
        for port, bus in zip(ports[:number], ports[number:], strict=True):
            host = await self.network.add(port, bus) if self.network else HOST
            lines = [*self._lines(bus), *self._options]
            self.nodes.append(RedisNode(folder / str(port), port, lines, self._access, host=host))
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

        await until(taken)

    async def view(self) -> list[list[str]]:
        """CLUSTER NODES by a living node: for each node its words."""
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
        """The master of a slot: who says so of itself. What others say may be older for a moment, after a move too."""
        alive = [node for node in self.nodes if node.alive]
        told = await asyncio.gather(*(_of_itself(node) for node in alive), return_exceptions=True)
        claims = [
            (int(words[6]), node)
            for node, words in zip(alive, told, strict=True)
            if isinstance(words, list) and any(_covers(part, slot) for part in words[8:])
        ]
        if not claims:
            raise OSError(f"nobody has slot {slot}")
        return max(claims, key=lambda claim: claim[0])[1]  # one that was frozen may not know of its successor yet

    async def some_master(self, turn: int) -> RedisNode:
        """The owners of the first, the second and the third third of the slots in turn."""
        return await self.owner(SLOTS * (turn % MASTERS) // MASTERS)

    async def master_of(self, key: str) -> RedisNode:
        return await self.owner(slot_of(key))

    async def slots_of(self, master: RedisNode) -> tuple[int, int] | None:
        """Its first and its last slot; None when it has none."""
        for words in await self.view():
            if words[0] == self._ids[master] and words[8:]:
                ends = [int(end) for part in words[8:] if part[0] != "[" for end in part.split("-")]
                return min(ends), max(ends)
        return None

    async def replicas(self) -> list[RedisNode]:
        """All living replicas."""
        masters = await self.masters()
        return [node for node in self.nodes if node.alive and node not in masters]

    async def replicas_of(self, master: RedisNode) -> list[RedisNode]:
        """Its living replicas."""
        own = [self._node(words[0]) for words in await self.view() if words[3] == self._ids[master]]
        return [node for node in own if node.alive]

    async def failed_over(self, old: RedisNode) -> None:
        """Wait until a replica has taken the slots of a master that was killed or frozen, and all others know."""
        await until(lambda: self._is_replaced(old))

    async def _is_replaced(self, old: RedisNode) -> bool:
        return all([await self._sees_replaced(node, old) for node in self.nodes if node.alive and node is not old])

    async def _sees_replaced(self, node: RedisNode, old: RedisNode) -> bool:
        ranges = await node.ask("CLUSTER", "SLOTS")
        names = {entry[2][2] for entry in ranges}
        return self._ids[old] not in names and sum(end - first + 1 for first, end, *_ in ranges) == SLOTS

    async def is_alone(self, node: RedisNode) -> bool:
        """Whether it finds that it is cut off from most masters, and refuses what it is asked."""
        return "cluster_state:fail" in await node.ask("CLUSTER", "INFO")

    async def failover(self, master: RedisNode) -> RedisNode:
        """CLUSTER FAILOVER, which loses nothing: a replica of it becomes the master; that one. On a busy machine Redis
        gives one up after 5 s, and tells nobody."""
        replica = (await self.replicas_of(master))[0]
        for _ in range(_TRIES):
            with contextlib.suppress(hiredis.ReplyError):  # it is the master by now
                await replica.ask("CLUSTER", "FAILOVER")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FAILOVER_S):
                    await self.failed_over(master)
                    return replica
        raise TimeoutError(f"{master.address} was asked {_TRIES} times to step down")

    async def settled(self) -> None:
        """Wait until each living node finds the cluster well and knows all others, and each replica has all."""
        await until(self._is_settled)

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
        """Move a slot as an operator's tool does, `batch` keys at a time; returns how many keys it had.

        While it is under way, the slot's keys are on both nodes, and a script that names keys of both is refused.
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
        # The new owner first: the old one would send clients to a node that knows of nothing.
        others = [node for node in await self.masters() if node not in (old, to)]
        for node in (to, old, *others):
            await node.ask("CLUSTER", "SETSLOT", slot, "NODE", self._ids[to])
        await until(lambda: self._is_agreed(slot, to))
        return moved

    async def _is_agreed(self, slot: int, owner: RedisNode) -> bool:
        """Whether all nodes know that a slot is its owner's, and since which epoch.

        If it moved on before that, the next owner could take an epoch that is no higher, lose the slot to what is still
        said of the last one, and drop its keys: nobody would have it.
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
        """Move the slot of a key to the next master and back again; returns how many keys were moved."""
        slot = slot_of(key)
        home = await self.owner(slot)
        masters = await self.masters()
        away = masters[(masters.index(home) + 1) % len(masters)]
        return await self.move_slot(slot, away, batch) + await self.move_slot(slot, home, batch)


async def _of_itself(node: RedisNode) -> list[str]:
    """The words of its own line of CLUSTER NODES."""
    lines = (await node.ask("CLUSTER", "NODES", within_s=1)).splitlines()
    return next(words for line in lines if "myself" in (words := line.split())[2])


def _covers(part: str, slot: int) -> bool:
    """Whether the last words of a line of CLUSTER NODES, `5461-10922` or `7`, hold a slot."""
    if part.startswith("["):  # one that is being moved
        return False
    first, _, last = part.partition("-")
    return int(first) <= slot <= int(last or first)
