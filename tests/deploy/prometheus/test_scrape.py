"""deploy/prometheus/scrape.yaml: Prometheus takes it, and scrapes a service that asks for tokens."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from tests.deploy.prometheus.expressions import rules
from tests.deploy.prometheus.live import exporting, relaying
from tests.deploy.prometheus.server import Prometheus, configured, prometheus
from tests.deploy.prometheus.test_rules import promtool
from tests.jobqueue.journal.reading.process import JournalProcess
from tests.kit.guarded import guarded
from tests.kit.ports import free_port
from tests.kit.waiting import until


def test_prometheus_takes_the_configuration(tmp_path: Path) -> None:
    assert "SUCCESS" in promtool("check", "config", configured(tmp_path, ["a:1"], "b:1", "jqt_"))


async def up(server: Prometheus) -> dict[str, str]:
    """Whether the targets of each job answer."""
    return {each["metric"]["job"]: each["value"][1] for each in await server.query("up")}


async def health(server: Prometheus) -> list[str]:
    """Whether each rule could be evaluated: ok, err, or not yet."""
    groups = (await server.get("rules"))["groups"]
    return [rule["health"] for group in groups for rule in group["rules"]]


async def test_prometheus_scrapes_a_service_that_asks_for_tokens_and_evaluates_all_rules(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jq-"))
        services = await stack.enter_async_context(guarded(Path(folder), usual='access = "tokens"\n'))
        exporter = await stack.enter_async_context(exporting(services.redis_url))
        token = (await services.token("metrics")).token.text
        journal = f"127.0.0.1:{(port := free_port())}"
        run = JournalProcess(
            services.redis_url, f"sqlite:///{folder}/j.db", tmp_path / "log", "--metrics-port", str(port)
        )
        await stack.enter_async_context(run)
        outbox = await stack.enter_async_context(relaying(Path(folder), services.service.url))
        config = configured(tmp_path, [f"127.0.0.1:{services.service.port}"], exporter, token, journal, outbox)
        server = await stack.enter_async_context(prometheus(config))

        async def are_scraped() -> bool:
            jobs = ("jobqueue", "jobqueue-redis", "jobqueue-journal", "jobqueue-outbox")
            return await up(server) == dict.fromkeys(jobs, "1")

        async def are_evaluated() -> bool:
            return await health(server) == ["ok"] * len(rules())

        await until(are_scraped, within_s=30, every_s=0.05)
        await until(are_evaluated, within_s=30, every_s=0.05)
