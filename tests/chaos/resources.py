"""The resources that a service holds, as events: open files of its processes, connections to Redis, keys in Redis.

They are measured before an attack, under load, and once nobody asks any more, when nothing may be left over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from buckets import Redis
from buckets.redis.client import One
from tests.chaos.history import History
from tests.chaos.judges.leaks import REDIS, Held, leaks
from tests.chaos.servers import Servers
from tests.chaos.stage import Instance, Stage
from tests.kit.redis_cluster import ClusterSet
from tests.kit.redis_sentinels import SentinelSet

_NAME = "name=jobqueue "  # names the service's connections in CLIENT LIST (buckets/redis/url.py)
_PAGE = 1000
_SETTLED_S = 60.0
"""How long until unused resources must be released: a service takes a moment to notice that its clients hung up."""
_AGAIN_S = 0.2


async def measure(stage: Stage) -> Held:
    """What all instances and Redis hold now."""
    held = {instance.url: await _of_instance(instance) for instance in stage.instances}
    held[REDIS] = {"connections": await _connections(stage.servers)} | await _keys(stage.servers.url)
    return held


def note(held: Held, moment: str, history: History) -> None:
    """Record a measurement. `moment` is `before` or `after`."""
    for owner, numbers in held.items():
        op = history.invoke(moment, "resources", url=owner)
        history.complete(moment, "ok", "resources", op, url=owner, counts=numbers)


async def note_at_rest(stage: Stage, before: Held) -> None:
    """Record what is held at rest: as soon as it is no more than before, or after a time limit."""
    end = asyncio.get_running_loop().time() + _SETTLED_S
    held = await measure(stage)
    while list(leaks(before, held)) and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(_AGAIN_S)
        held = await measure(stage)
    note(held, "after", stage.history)


async def _of_instance(instance: Instance) -> dict[str, int]:
    assert instance.process
    folder = Path(f"/proc/{instance.process.pid}")
    clients = _sockets_of(folder, instance.port)
    open_now = list(_open_files(folder))
    clients |= _sockets_of(folder, instance.port)  # some may have come or gone meanwhile
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return {
        "clients": sum(name in clients for name in open_now),
        "descriptors": sum(name not in clients for name in open_now),
        "threads": int(status["Threads"]),
        "kB": int(status["VmRSS"].split()[0]),
        "waiting pops": await instance.figure("jobqueue_parked_pops"),  # last, because asking opens a connection
    }


def _open_files(process: Path) -> Iterator[str]:
    for link in (process / "fd").iterdir():
        try:
            yield str(link.readlink())
        except FileNotFoundError:  # closed meanwhile
            continue


def _sockets_of(process: Path, port: int) -> set[str]:
    """The connections of clients, which are those to its own port."""
    lines = [line.split() for line in (process / "net/tcp").read_text().splitlines()[1:]]
    own = (words for words in lines if int(words[1].rpartition(":")[2], 16) == port and words[3] != "0A")  # 0A: listens
    return {f"socket:[{words[9]}]" for words in own}


async def _connections(servers: Servers) -> int:
    """How many connections the service has to all servers, replicas included."""
    if isinstance(servers, SentinelSet | ClusterSet):
        nodes = [*servers.nodes, *(servers.sentinels if isinstance(servers, SentinelSet) else ())]
        lists = await asyncio.gather(*(node.ask("CLIENT", "LIST") for node in nodes if node.alive))
        return sum(each.count(_NAME) for each in lists)
    redis = Redis(servers.url, timeout_s=20)
    try:
        return int((await redis.read("CLIENT", "LIST")).decode().count(_NAME)) - 1  # the one of this suite
    finally:
        await redis.close()


async def _keys(url: str) -> dict[str, int]:
    """Counts of keys by kind (buckets/keys.py), of dead letters, and of records without an expiry."""
    redis = Redis(url, timeout_s=20)
    found: Counter[str] = Counter()
    try:
        for server in await redis.servers():
            cursor = b"0"
            while True:
                cursor, keys = await server.read("SCAN", cursor, "COUNT", _PAGE)
                found.update(map(_kind, keys))
                found["endless records"] += (await _all(server, "PTTL", keys, "keys j")).count(-1)
                found["dead letters"] += sum(await _all(server, "ZCARD", keys, "keys d"))
                if cursor == b"0":
                    break
    finally:
        await redis.close()
    return dict(found)


async def _all(server: One, command: str, keys: list[bytes], kind: str) -> list[int]:
    """The answers of a command for all keys of a kind."""
    return list(await asyncio.gather(*(server.read(command, key) for key in keys if _kind(key) == kind)))


def _kind(key: bytes) -> str:
    tag, _, rest = key.decode("utf-8", "replace").partition("}:")
    return f"keys {rest.partition(':')[0]}" if tag.startswith("{jq:") else f"keys {tag}"
