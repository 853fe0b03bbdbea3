"""The definition of a schedule: what a command asked for, as it is kept in the schedule's record."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from jobqueue.engine.schedules import times
from jobqueue.engine.schedules.times import BadCron, Cron, Interval, Times
from jobqueue.errors import BadField
from jobqueue.schema import params
from jobqueue.schema.params import at_ms, ms

UTC = "UTC"


class Definition(Struct, omit_defaults=True, kw_only=True):
    """What a schedule does, and when. Spans are seconds, as in the command; the same command always gives the same
    bytes. An option that is None follows the policies of the topic at the time of each occurrence."""

    topic: str
    every: float | None = None
    start: float | None = None
    """unix seconds, or None for the time of its definition."""
    cron: str | None = None
    zone: str = UTC
    jitter: float = 0
    catch_up: str = "last"
    overlap: str = "allow"
    paused: bool = False
    ttr: float | None = None
    priority: int | None = None
    tries: int | None = None
    backoff: list[float] | None = None
    ttl: float | None = None
    retention: float | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    body: Raw

    def times(self, start_ms: int) -> Times:
        """The times of the schedule. `start_ms`: the time from which its interval counts. Raises ValueError for a
        calendar that this version cannot read."""
        if self.every is not None:
            return Interval(ms(self.every), start_ms)
        try:
            return Cron(self.cron or "", self.zone)
        except KeyError:
            raise ValueError(f"the time zone {self.zone} is not known") from None

    def occurrence(self, job_id: str) -> params.Add:
        """The add of one of its occurrences."""
        options = {name: getattr(self, name) for name in OPTIONS}
        return params.Add(topic=self.topic, body=self.body, id=job_id, if_exists="reject", **options)


OPTIONS = ("ttr", "priority", "tries", "backoff", "ttl", "retention", "headers", "tags")
"""The options of an add that occurrences have, too."""
# An explicit default is left out here, because msgspec leaves out only the identical object.
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Definition)}
_TIMING = ("every", "cron", "zone", "jitter", "catch_up", "overlap", "paused")


def defined(command: params.Schedule) -> Definition:
    """The definition that a command asks for. Raises BadField for an unknown time zone or an unreadable calendar."""
    given: dict[str, Any] = {name: getattr(command, name) for name in (*_TIMING, *OPTIONS)}
    definition = Definition(
        topic=command.topic,
        body=command.body,
        start=None if command.start is None else at_ms(command.start) / 1000,
        **{name: value for name, value in given.items() if value not in (None, _DEFAULTS[name])},
    )
    if definition.cron is not None:
        definition.cron = " ".join(definition.cron.upper().split())
        _check_calendar(definition)
    return definition


def _check_calendar(definition: Definition) -> None:
    zone, cron = definition.zone, definition.cron or ""
    if zone not in times.names():
        near = times.near(zone)
        raise _bad("zone", f"did you mean {near!r}?" if near else f"there is no {zone!r}")
    try:
        Cron(cron, zone)
    except BadCron as error:
        raise _bad("cron", _fault(cron, str(error))) from None


def _bad(field: str, what: str) -> BadField:
    return BadField(f"{field} {params.must_be(field, 'schedule')}; {what}", field=field)


def _fault(cron: str, error: str) -> str:
    """What is wrong with an expression, in words; cronsim says `Bad minute`."""
    count = len(cron.split())
    if count not in (5, 6):
        return f"this one has {count} field{'' if count == 1 else 's'}"
    bad = error.removeprefix("Bad ")
    return f"its {bad} is not possible" if bad != error else f"this one {error}"


def encoded(definition: Definition) -> bytes:
    """The definition as it is stored."""
    return msgspec.json.encode(definition)


_DECODER = msgspec.json.Decoder(Definition)


def decoded(raw: bytes) -> Definition:
    """Read a stored definition. Raises ValueError."""
    return _DECODER.decode(raw)
