"""What a service holds: what its processes have open, its connections at Redis, and its keys there; as events.

It is measured before an attack, under load, and when all is over and nobody asks any more: then nothing must be left.
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
from tests.chaos.servers.redis import Servers
from tests.chaos.stage import Instance, Stage
from tests.redis_cluster import ClusterSet
from tests.redis_sentinels import SentinelSet

_NAME = "name=jobqueue "  # of the service's connections, in CLIENT LIST (buckets/redis/url.py)
_PAGE = 1000
_SETTLED_S = 10.0
"""Until what nobody needs any more must be gone: a service sees in time that its clients hung up."""
_AGAIN_S = 0.2


async def measure(stage: Stage) -> Held:
    """What all instances and Redis hold now."""
    held = {instance.url: await _of_instance(instance) for instance in stage.instances}
    held[REDIS] = {"connections": await _connections(stage.servers)} | await _keys(stage.servers.url)
    return held


def note(held: Held, moment: str, history: History) -> None:
    """Write it down: `moment` is `before` or `after`."""
    for owner, numbers in held.items():
        op = history.invoke(moment, "resources", url=owner)
        history.complete(moment, "ok", "resources", op, url=owner, counts=numbers)


async def note_at_rest(stage: Stage, before: Held) -> None:
    """Note what is held when nobody asks any more: as soon as that is not more than before, or after some time."""
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
    clients |= _sockets_of(folder, instance.port)  # one may have come or gone meanwhile
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return {
        "clients": sum(name in clients for name in open_now),
        "descriptors": sum(name not in clients for name in open_now),
        "threads": int(status["Threads"]),
        "kB": int(status["VmRSS"].split()[0]),
        "waiting pops": await instance.figure("jobqueue_parked_pops"),  # last: to ask is a connection
    }


def _open_files(process: Path) -> Iterator[str]:
    for link in (process / "fd").iterdir():
        try:
            yield str(link.readlink())
        except FileNotFoundError:  # closed meanwhile
            continue


def _sockets_of(process: Path, port: int) -> set[str]:
    """The connections of clients: those at its own port."""
    lines = [line.split() for line in (process / "net/tcp").read_text().splitlines()[1:]]
    own = (words for words in lines if int(words[1].rpartition(":")[2], 16) == port and words[3] != "0A")  # listens
    return {f"socket:[{words[9]}]" for words in own}


async def _connections(servers: Servers) -> int:
    """How many the service has at all servers, those that are no masters too."""
    if isinstance(servers, SentinelSet | ClusterSet):
        nodes = [*servers.nodes, *(servers.sentinels if isinstance(servers, SentinelSet) else ())]
        lists = await asyncio.gather(*(node.ask("CLIENT", "LIST") for node in nodes if node.alive))
        return sum(each.count(_NAME) for each in lists)
    redis = Redis(servers.url, timeout_s=20)
    try:
        return int((await redis.read("CLIENT", "LIST")).decode().count(_NAME)) - 1  # our own
    finally:
        await redis.close()


async def _keys(url: str) -> dict[str, int]:
    """How many keys of each kind (buckets/keys.py), dead letters, and records that do not end by themselves."""
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
    """What a command says of each of the keys that are of a kind."""
    return list(await asyncio.gather(*(server.read(command, key) for key in keys if _kind(key) == kind)))


def _kind(key: bytes) -> str:
    tag, _, rest = key.decode("utf-8", "replace").partition("}:")
    return f"keys {rest.partition(':')[0]}" if tag.startswith("{jq:") else f"keys {tag}"
