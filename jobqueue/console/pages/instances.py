"""The processes of the service, the timers that each holds, and the Redis behind them; and the workers that poll
topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from jobqueue.console.visit import Visit, together

_SUBJECTS = ("instances", "service", "workers", "redis", "clock", "namespace", "events")
"""The subjects of the `health` findings on this page; the name of a server or a namespace follows its subject."""


async def show(visit: Visit) -> web.StreamResponse:
    """All live instances, sorted by where they run, and what `health` reports about them and about Redis."""
    answer, health = await together(visit.ask("instances"), visit.ask("health"))
    instances = sorted(answer["instances"], key=_place)
    return visit.page(
        "instances",
        "Instances",
        instances=instances,
        versions=sorted({each["version"] for each in instances if each["version"]}),
        timers=answer["shards"] * answer["buckets"],
        held=sum(_timers(each) for each in instances),
        shards=answer["shards"],
        findings=[each for each in health["findings"] if each["subject"].partition(" ")[0] in _SUBJECTS],
        examined=health["at"],
        number_of=_timers,
    )


def _place(instance: Mapping[str, Any]) -> tuple[str, int, int]:
    """Where an instance runs, as far as it is known."""
    return instance["host"] or "", instance["worker"] or 0, instance["pid"] or 0


def _timers(instance: Mapping[str, Any]) -> int:
    """How many timers an instance holds."""
    by_shard: Mapping[str, Sequence[int]] = instance["timers"] or {}
    return sum(map(len, by_shard.values()))


async def show_workers(visit: Visit) -> web.StreamResponse:
    """The workers of one topic, or of all, sorted by name."""
    topic = visit.text("topic")
    answer = await visit.ask("workers", **({"topic": topic} if topic else {}))
    workers = sorted(answer["workers"], key=lambda worker: (worker["worker"], worker["topics"]))
    return visit.page("workers", "Workers", workers=workers, others=answer["others"], topic=topic)
