"""deploy/grafana: every panel has something to show of a service under load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.deploy.grafana.boards import VARIABLES, targets
from tests.deploy.prometheus.live import exporting
from tests.deploy.prometheus.server import Prometheus, configured, prometheus
from tests.deploy.prometheus.stage import Stage, add_for_ever, background, work_for_ever
from tests.kit.ports import free_ports
from tests.kit.waiting import until

_VARIABLES = {**VARIABLES, "$__rate_interval": "1m"}


async def empty(server: Prometheus) -> list[str]:
    """The expressions without a number that has the labels of the legend."""
    return [each for each, legend in targets(_VARIABLES) if not any(shown(legend, await server.query(each)))]


def shown(legend: set[str], samples: list[Any]) -> Iterator[bool]:
    """For each sample, whether it is a number and has the labels."""
    return (sample["value"][1] != "NaN" and legend <= sample["metric"].keys() for sample in samples)


async def test_every_expression_has_a_number(tmp_path: Path) -> None:
    service, exporter = free_ports(2)
    async with AsyncExitStack() as stack:
        stage = await stack.enter_async_context(Stage([service], "redis_timeout_s = 0.3\n"))
        exported = await stack.enter_async_context(exporting(stage.redis.url, exporter))
        server = await stack.enter_async_context(prometheus(configured(tmp_path, stage.targets, exported, "jqt_")))
        load = (add_for_ever(stage.client, delay=0.2), work_for_ever(stage.client))
        await stack.enter_async_context(background(*load, add_for_ever(stage.client, "t", durability="replicated")))

        async def has_failed() -> bool:
            return bool(await server.query("jobqueue_redis_errors_total"))

        async def is_complete() -> bool:
            return not await empty(server)

        await until(lambda: scraped(server), within_s=30, every_s=0.1)
        stage.redis.freeze()
        await until(has_failed, within_s=30, every_s=0.1)
        stage.redis.thaw()
        try:
            await until(is_complete, within_s=60, every_s=0.3)
        except TimeoutError:
            assert await empty(server) == []


async def scraped(server: Prometheus) -> bool:
    """Whether the service was."""
    return bool(await server.query("jobqueue_redis_up == 1"))
