"""Scrapes of real services, once a second, as series for `promtool test rules`.

A second of the recording is a minute of the series, so that a rule for ten minutes needs ten seconds; ages in seconds
are multiplied accordingly.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.prometheus.expressions import RULES
from tests.deploy.prometheus.live import scraped

_AGES = {"jobqueue_oldest_ready_age_seconds"}
_GONE = "stale"


class Recording:
    """The samples of some targets. `async with` scrapes them all the while."""

    def __init__(self, *targets: str, **others: str) -> None:
        """`targets`: the hosts and ports of services; `others`: by job, those of other programs."""
        self._jobs = {**dict.fromkeys(targets, "jobqueue"), **{at: job.replace("_", "-") for job, at in others.items()}}
        self._series: dict[str, dict[int, str]] = {}  # by name and labels, the values by minute
        self._began = time.monotonic()
        self.minute = 0
        """That was scraped last, of all targets."""

    async def __aenter__(self) -> Recording:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def minutes(self, number: int) -> int:
        """Wait until this many more minutes are recorded; returns the last."""
        end = self.minute + number
        while self.minute < end:
            assert not self._task.done(), self._task.exception()
            await asyncio.sleep(0.05)
        return self.minute

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as scrapes:
            minute = 0
            while True:
                minute += 1
                await asyncio.sleep(max(self._began + minute - time.monotonic(), 0))
                scrapes.create_task(self._scrape_all(minute))

    async def _scrape_all(self, minute: int) -> None:
        await asyncio.gather(*(self._scrape(target, minute) for target in self._jobs))
        self.minute = max(self.minute, minute)

    async def _scrape(self, target: str, minute: int) -> None:
        """As Prometheus does: a scrape that fails ends all series of its target but `up`."""
        labels = {"job": self._jobs[target], "instance": target}
        found = {}
        with contextlib.suppress(aiohttp.ClientError):
            found = _samples(await scraped(target), labels)
        ended = {name for name in self._series if f'instance="{target}"' in name} - found.keys()
        found |= dict.fromkeys(ended, _GONE) | {_series("up", labels): str(int(bool(found)))}
        for name, value in found.items():
            self._series.setdefault(name, {})[minute] = value

    def case(self, *questions: Mapping[str, Any]) -> dict[str, Any]:
        """A test of promtool with these series."""
        return {
            "interval": "1m",
            "input_series": [
                {"series": name, "values": " ".join(samples.get(minute, "_") for minute in range(self.minute + 1))}
                for name, samples in self._series.items()
            ],
            "promql_expr_test": list(questions),
        }


def _samples(text: str, labels: Mapping[str, str]) -> dict[str, str]:
    """The values of a scrape by name and labels, with those of its target."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        _series(each.name, {**each.labels, **labels}): _value(each.value * (60 if each.name in _AGES else 1))
        for each in samples
    }


def _series(name: str, labels: Mapping[str, str]) -> str:
    pairs = [f'{label}="{value}"' for label, value in sorted(labels.items())]
    return f"{name}{{{', '.join(pairs)}}}"


def _value(value: float) -> str:
    """As promtool reads it."""
    return {"inf": "Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(value), repr(value))


def firing(minute: int, *alerts: str) -> dict[str, Any]:
    """Ask promtool whether these alerts, and no others, fire."""
    return {
        "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts],
    }


def write(file: Path, *cases: Mapping[str, Any]) -> None:
    """The file for `promtool test rules`."""
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": list(cases)}))
