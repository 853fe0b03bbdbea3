"""What a Redis server reports about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from buckets.scripts import Value


class Server(Protocol):
    """One Redis server that can be queried."""

    async def read(self, *command: Value) -> Any:
        """Run a plain command that changes nothing."""


async def facts_of(server: Server, *sections: str) -> dict[str, str]:
    """INFO as a mapping, for some sections or all. INFO is preferred to CONFIG, which managed services often forbid."""
    reply = await server.read("INFO", *sections)
    pairs = (line.split(":", 1) for line in reply.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}


class Memory(NamedTuple):
    """The bytes that count towards the limit of a server, and the limit (maxmemory; 0 for none)."""

    used: int
    limit: int


def memory_in(facts: Mapping[str, str]) -> Memory:
    """The memory of a server, from the facts in the section `memory`."""
    used = int(facts.get("used_memory", 0)) - int(facts.get("mem_not_counted_for_evict", 0))
    return Memory(used, int(facts.get("maxmemory", 0)))
