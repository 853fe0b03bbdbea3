"""The table of events in docs/operations.md: every event that the code logs, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_LOGGED = re.compile(  # `log.info("a.b"`, or passed on: `call(log.info, "a.b"`
    r'(?:log\.(?:debug|info|warning|error|exception)[(,]|(?:Outage|Sparing)\([^"]*)\s*((?:"[a-z_.]+"(?:, )?)+)'
)


def logged() -> set[str]:
    """The names of all events in the code."""
    sources = [path.read_text() for top in ("buckets", "jobqueue") for path in (ROOT / top).rglob("*.py")]
    return {name for source in sources for group in _LOGGED.findall(source) for name in re.findall(r"[a-z_.]+", group)}


def documented() -> list[str]:
    """The names in the first column of the table of events."""
    table = (ROOT / "docs" / "operations.md").read_text().partition("\n| event | means |\n")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[1:]]
    return [name.strip() for row in rows for name in row.split(",")]


def test_the_table_of_events_has_all_that_are_logged_and_no_others() -> None:
    assert len(logged()) > 40
    assert set(documented()) == logged()
    assert len(documented()) == len(set(documented()))


_ENDS = {
    **{"journal.interrupted": "resumed", "journal.behind": "caught_up", "journal.off": "on"},
    **{"redis.died": "started", "redis.restart_failed": "started", "redis.awaited": "started"},
    **{"sink.down": "up", "sink.blocked": "up", "sink.paused": "resumed", "sink.interrupted": "continued"},
    **{"timer.failed": "found", "worker.ended": "started", "outbox.down": "up"},
}
"""How the end of a trouble is called, where not by `found` after `lost`."""
_TROUBLES = ("lost", "interrupted", "died", "down", "blocked", "paused", "behind", "off", "awaited")
_OF_ONE_JOB = {"job.died", "jobs.died", "schedule.blocked"}


def test_every_trouble_that_lasts_has_an_event_for_its_end() -> None:
    names = logged()
    troubles = {name for name in names if name.rpartition(".")[2] in _TROUBLES} - _OF_ONE_JOB
    assert {"roll.lost", "lock.lost", "bell.lost", "redis.lost", "namespace.lost"} <= troubles
    assert _ENDS.keys() <= names
    for name in troubles | _ENDS.keys():
        assert f"{name.rpartition('.')[0]}.{_ENDS.get(name, 'found')}" in names, name
