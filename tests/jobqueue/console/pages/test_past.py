"""Pages about the past: which period is shown, and what stands there when the service has no figures of it."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from jobqueue.console.formatting import minute
from jobqueue.console.pages import overview
from tests.deploy.prometheus.expressions import RULES
from tests.jobqueue.console.consoles import Console, console
from tests.jobqueue.console.contents import TOPIC
from tests.kit.guarded import guarded
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(filled: ServiceProcess) -> AsyncIterator[Console]:
    async with console(filled.url) as made:
        yield made


async def shown(front: Console, path: str) -> str:
    response, text = await front.get(path)
    assert response.status == 200, text
    return text


async def test_lateness_is_told_in_a_sentence_a_chart_and_a_table(front: Console) -> None:
    text = await shown(front, "/lateness")
    assert "jobs became ready: half of them within " in text and ", 99 of 100 within " in text
    assert '<path class="heat-5" d="M' in text and 'hx-trigger="every 10s"' in text
    assert text.count(">≤ 0.5 ms</text>") == 2  # a row of each chart
    assert ">&gt; 1 min</th>" in text and "Slowest minutes" in text
    assert f'"/topic?name={TOPIC}"' in await shown(front, f"/lateness?topic={TOPIC}")


async def test_the_overview_has_rates_lateness_and_what_is_wrong(front: Console) -> None:
    text = await shown(front, "/")
    assert re.search(r"<p>\d+ adds, \d+ deliveries, \d+ finishes.</p>", text)
    assert text.count('<polyline class="curve ') == 3 and "<dt>due to ready, p50 and p99</dt>" in text
    assert re.search(r"<dt>ready within 25 ms, objective 99.9 %</dt><dd( class=\"bad\")?>[\d.]+ %</dd>", text)
    assert "3 dead letters; the newest died " in text and "Redis keeps nothing on disk" in text
    assert ">ok</span>" not in text


@pytest.mark.parametrize(
    ("counts", "share", "is_met"), [([999, 0, 1], "99.9 %", True), ([9989, 0, 11], "99.89 %", False)]
)
async def test_jobs_that_were_ready_within_25_ms_were_on_time(counts: list[int], share: str, is_met: bool) -> None:
    found = {"bounds": [0.025, 0.05], "total": {"due_to_ready": {"counts": counts}}}
    assert overview._on_time(found) == (share, is_met)


async def test_the_objective_is_that_of_the_alerts() -> None:
    rules = RULES.read_text()
    assert f'due_to_ready_seconds_bucket{{le="{overview._ON_TIME_S}"}}' in rules
    assert f"jobqueue:on_time:error_ratio_rate3d > {1 - overview._OBJECTIVE:.3f}\n" in rules


async def test_topics_have_sparks_where_something_happened(front: Console) -> None:
    async def have_sparks() -> bool:
        return (await shown(front, "/topics")).count('<svg class="spark"') == 1

    await until(have_sparks)  # not at once on a busy machine: a page does not wait long for them
    assert re.search(r"\d+ adds, \d+ deliveries in 30 min</title>", await shown(front, "/topics"))


async def test_a_topic_shows_its_lateness_and_the_settings_in_force(front: Console) -> None:
    text = await shown(front, f"/topic?name={TOPIC}")
    assert "jobs were delivered for the first time: half of them" in text and '<path class="heat-' in text
    assert re.search(r"<code>ttr_s</code></th><td[^>]*>60.0</td><td><span[^>]*>all topics \(default\)<", text)
    unknown = await shown(front, "/topic?name=unknown")
    assert "No jobs became ready in this time." in unknown and '<svg class="tall"' not in unknown


async def test_a_period_has_an_address_of_its_own(front: Console) -> None:
    end = time.time() // 60 * 60 - 600
    text = await shown(front, f"/lateness?since={minute(end - 1200)}&until={end:.0f}")
    assert f'value="{minute(end - 1200)}"' in text and "every 10s" not in text
    assert "1,020 jobs became ready" in text  # 51 a minute
    by_hours = await shown(front, f"/lateness?until={minute(end)}")
    assert f'value="{minute(end - 3600)}"' in by_hours
    long_ago = await shown(front, "/lateness?since=2020-01-01&until=2020-01-02")
    assert "Since is too long ago: figures of all topics together are kept for 48 h." in long_ago


async def test_a_period_is_bounded(subtests: pytest.Subtests, front: Console) -> None:
    cases: list[tuple[str, str]] = [
        ("hours=49", "hours"),
        ("hours=1e3", "hours"),
        ("since=yesterday", "since"),
        ("since=-1", "since"),
        ("since=nan", "since"),
        ("since=9999-12-31T23:00", "since"),
        ("since=2026-01-01&until=2025-01-01", "until"),
        ("since=2026-01-01&until=2026-02-01", "until"),
        ("until=1e300", "until"),
    ]
    for query, field in cases:
        with subtests.test(query=query, field=field):
            response, text = await front.get(f"/lateness?{query}")
            assert response.status == 400 and f"{field} must be " in text


async def test_a_topic_is_shown_for_the_time_that_its_figures_are_kept(front: Console) -> None:
    text = await shown(front, f"/lateness?topic={TOPIC}&hours=48")
    assert 'aria-current="true">2 h</a>' in text and "hours=3" not in text
    text = await shown(front, f"/lateness?topic={TOPIC}&since={time.time() - 7 * 3600:.0f}")
    assert "figures of a topic are kept for 2 h." in text


async def test_a_service_without_history_says_how_to_have_one(redis_server: RedisServer, tmp_path: Path) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text("history_hours = 0\n")
    flags = ("--config", str(config), "--redis", redis_server.url, "--namespace", "no-history")
    async with ServiceProcess(*flags) as service, console(service.url) as front:
        text = await shown(front, "/lateness?hours=48")
        assert "the setting history_hours is 0. With history_hours = 48, the last two days are shown here." in text
        for path in ("/", f"/topic?name={TOPIC}", "/topics"):
            assert ("the setting history_hours is 0" in await shown(front, path)) == (path != "/topics")


async def test_a_token_that_reaches_some_topics_has_to_name_one(tmp_path: Path) -> None:
    async with guarded(tmp_path) as house, console(house.url) as front:
        session = await front.sign_in((await house.token("look", topics=["order-*"])).token.text)
        response, text = await front.get("/lateness", **session)
        assert response.status == 200 and "name one of them to see its figures" in text
        response, text = await front.get("/", **session)
        assert response.status == 200 and "name one of them to see its figures" in text
        response, text = await front.get("/topic?name=order-1", **session)
        assert response.status == 200 and "The settings give this topic no limits." in text
        response, text = await front.get("/lateness?topic=order-1", **session)
        assert response.status == 200 and "No jobs became ready in this time." in text
        response, text = await front.get("/lateness?topic=other", **session)
        assert response.status == 403
