"""jobqueue.access.authentication: whoever is not let in is counted and logged, by why."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import structlog

from buckets import Members, Notifier
from buckets.access import Tokens
from buckets.errors import JobQueueError, Unavailable
from buckets.pool.pool import Pool
from jobqueue.access.authentication import Authentication, Entry, digest_of
from jobqueue.access.issuing import Issuing
from jobqueue.access.token_table import Table
from jobqueue.dialect_settings import Lmstfy
from jobqueue.errors import Unauthorized
from jobqueue.logs import Sparing
from jobqueue.metrics.process import Metrics
from tests.jobqueue.access.tables import create


class Visitor:
    """A client; each has an address of its own, as a line is logged once a second and address."""

    def __init__(self, number: int, *certificate_names: str) -> None:
        self.host = f"192.0.2.{number}"
        self.certificate_names = certificate_names


@pytest.fixture
async def table(live_pool: Pool) -> AsyncIterator[Table]:
    notifier = Notifier(live_pool)
    yield Table(Tokens(live_pool), Members(live_pool, notifier), notifier)


def verdicts(metrics: Metrics) -> dict[str, float]:
    metrics.pour(0)
    samples = next(iter(family.samples for family in metrics.registry.collect() if family.name == "jobqueue_access"))
    return {sample.labels["verdict"]: sample.value for sample in samples if sample.value}


async def test_who_is_not_let_in_is_counted_and_logged_by_why(table: Table, live_pool: Pool) -> None:
    issuing = Issuing(Tokens(live_pool))
    good, ended = await create(issuing, "good"), await create(issuing, "ended")
    await table.tick()
    await issuing.revoke(ended.record.id)
    table.heard()
    await table.tick()
    metrics = Metrics()
    authentication = Authentication(table)
    metrics.tokens.used = authentication.take_grants
    entry = Entry(authentication, metrics, Sparing("access.refused"))
    with structlog.testing.capture_logs() as logs:
        assert entry.grant(digest_of(good.token.text), Visitor(1)).name == "good"
        assert entry.dialect_grant(good.token.text, Lmstfy(), "192.0.2.1").name == "good"
        for number, digest in enumerate([b"", digest_of("unknown"), digest_of(ended.token.text)], 2):
            with pytest.raises(Unauthorized):
                entry.grant(digest, Visitor(number))
        for number, shown in enumerate([None, "unknown", ended.token.text], 5):
            with pytest.raises(Unauthorized):
                entry.dialect_grant(shown, Lmstfy(), f"192.0.2.{number}")
    assert verdicts(metrics) == {"ok": 2, "missing": 2, "unknown": 2, "expired": 2}
    lines = [(line["event"], line["verdict"], line["address"], line.get("token")) for line in logs]
    assert lines == [
        ("access.refused", verdict, f"192.0.2.{first + at}", token)
        for first in (2, 5)
        for at, (verdict, token) in enumerate([("missing", None), ("unknown", None), ("expired", ended.record.id)])
    ]
    assert ended.token.text not in str(logs)


async def test_a_token_that_may_exist_is_neither_counted_nor_logged(table: Table) -> None:
    metrics = Metrics()
    entry = Entry(Authentication(table), metrics, Sparing("access.refused"))
    with structlog.testing.capture_logs() as logs, pytest.raises(Unavailable):
        entry.grant(digest_of("new"), Visitor(1))
    assert (verdicts(metrics), logs) == ({}, [])


_OWN = Lmstfy(token="right")  # noqa: S106 - no real one


def test_a_service_without_tokens_counts_nobody_but_a_dialect_may_want_its_own() -> None:
    metrics = Metrics()
    entry = Entry(Authentication(), metrics, Sparing("access.refused"))
    assert entry.grant(digest_of("x"), Visitor(1)).everything
    assert entry.dialect_grant(None, Lmstfy(), "192.0.2.1").everything
    with pytest.raises(JobQueueError):
        entry.dialect_grant("wrong", _OWN, "192.0.2.1")
    assert verdicts(metrics) == {"unknown": 1}
