"""`jobqueue check`: what it says about who may come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobqueue.health.access import check_access
from jobqueue.settings import Settings
from tests.jobqueue.access.authorities import Files

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens


async def told(subject: str, **given: Any) -> list[tuple[str, str]]:
    findings = [finding async for finding in check_access(Settings(**given))]
    return [(each.level, each.sentence) for each in findings if each.subject == subject]


@pytest.mark.parametrize(
    ("given", "level", "words"),
    [
        ({}, "ok", "open to every program on this machine"),
        ({"host": EVERYWHERE, "allow_open": True}, "warn", "everybody who reaches 0.0.0.0"),
        ({"host": EVERYWHERE, "access": "tokens"}, "ok", "every request needs a token"),
    ],
    ids=["loopback", "open", "tokens"],
)
async def test_who_may_come_in_is_reported(given: dict[str, Any], level: str, words: str) -> None:
    ((said, sentence),) = await told("access", **given)
    assert said == level
    assert words in sentence


@pytest.mark.parametrize(("days", "level"), [(90, "ok"), (13, "warn"), (-1, "bad")])
async def test_a_certificate_that_ends_soon_is_warned_of(tmp_path: Path, days: int, level: str) -> None:
    files = Files(tmp_path, days=days)
    ((said, _),) = await told("tls", **files.options)
    ((of_console, _),) = await told("console_tls", console_tls_cert=str(files.cert), console_tls_key=str(files.key))
    assert said == of_console == level
