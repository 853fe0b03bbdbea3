"""Answers as tables for a terminal. All text goes through `humanize.clean`, and rich reads none of it as markup."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobqueue.cli import humanize

Fields = Mapping[str, Any]

_STATES = ("delayed", "ready", "reserved", "dead")
_COLOURS = {"delayed": "cyan", "ready": "green", "reserved": "yellow", "dead": "red"}
_STATE_TIMES = {
    "ready": ("ready", "ready_since"),
    "reserved": ("lease ends", "reserved_until"),
    "dead": ("died", "dead_since"),
}
_WORK_COLOURS = {"parked": "green", "busy": "yellow", "blocked": "red"}
_TIMES = {
    *("due", "created", "until", "ready_since", "dead_since", "reserved_until", "paused_until", "ended", "ready"),
    *("expires", "used", "revoked", "old_until", "next"),
}
_SPANS = {"ttr", "ttl", "retention", "oldest_ready"}
_HIDDEN = {"success"}
_BAR_WIDTH = 30
_MOST_BINS = 40  # of a forecast, each in a row


def answer(fields: Fields) -> RenderableType:
    """An answer about one thing: a line per field, without null fields."""
    table = _named()
    for name, value in fields.items():
        if name not in _HIDDEN and value is not None and value != []:
            table.add_row(Text(humanize.clean(name)), _value(name, value))
    return table


def _named() -> Table:
    """An empty table for names and their values."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _value(name: str, value: Any) -> Text:
    if name in ("state", "was"):
        return _state(str(value))
    return Text(_words(name, value))


def _words(name: str, value: Any) -> str:
    if name == "value":
        return humanize.body(value, None)
    if isinstance(value, str):
        return humanize.clean(value)
    if name == "jobs":  # in the answer to an add to a virtual topic
        return "\n".join(humanize.clean(f"{job['id']} ({job['result']}, {job['state']})") for job in value)
    if name == "backoff":
        return ", ".join(map(humanize.span, value))
    if name in _TIMES:
        return humanize.when(value)
    return humanize.span(value) if name in _SPANS else humanize.body(value, None)


def _state(state: str, more: str = "") -> Text:
    return Text(humanize.clean(state + more), style=_COLOURS.get(state, ""))


def jobs(some: Sequence[Fields]) -> RenderableType:
    """A row per job."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", no_wrap=True, overflow="fold")  # people copy it, so bodies are cut off before it folds
    table.add_column("state", no_wrap=True)
    table.add_column("due", no_wrap=True)
    table.add_column("tries", no_wrap=True, justify="right")
    has_notes = any(map(_note, some))
    if has_notes:
        table.add_column("worker or reason", no_wrap=True, overflow="ellipsis", max_width=40)
    has_bodies = any("value" in job for job in some)
    if has_bodies:
        table.add_column("body", min_width=4)
    for job in some:
        body = Text(humanize.body(job.get("value")), no_wrap=True, overflow="ellipsis")
        notes = [Text(humanize.clean(_note(job)))] if has_notes else []
        table.add_row(
            Text(humanize.clean(str(job["id"]))),
            _state(job["state"], f" ({job['cause']})" if job["state"] == "dead" and "cause" in job else ""),
            Text(_time(job)),
            Text(f"{job['attempt']}/{job['tries'] or '∞'}"),
            *notes,
            *([body] if has_bodies else []),
        )
    return table


def _time(job: Fields) -> str:
    """The time that matters in the job's state."""
    words, field = _STATE_TIMES.get(job["state"], ("", ""))
    return f"{words} {humanize.ahead(job[field])}" if field in job else humanize.when(job.get("until", job["due"]))


def _note(job: Fields) -> str:
    """The worker that has the job, or the reason why the job was released or died."""
    return str(job.get("worker" if job["state"] == "reserved" else "reason") or "")


def topics(some: Iterable[Fields], most: int | None = None) -> RenderableType:
    """A row per topic, at most `most`. Topics whose jobs have been ready longest come first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("topic", overflow="fold")
    for state in _STATES:
        table.add_column(state, no_wrap=True, justify="right")
    table.add_column("oldest ready", no_wrap=True, justify="right")
    table.add_column("workers", no_wrap=True, justify="right")
    table.add_column("paused")
    for topic in sorted(some, key=_by_trouble)[:most]:
        counts = (Text(humanize.number(topic["counts"][state])) for state in _STATES)
        oldest, workers = topic["oldest_ready_s"], topic["workers"]
        is_alone = topic["counts"]["ready"] and not workers
        table.add_row(
            Text(humanize.clean(topic["topic"])),
            *counts,
            Text("" if oldest is None else humanize.span(round(oldest, 1))),
            Text(humanize.number(workers), style="red" if is_alone else ""),
            Text(_paused(topic)),
        )
    return table


def _by_trouble(topic: Fields) -> tuple[float, int, str]:
    return -(topic["oldest_ready_s"] or 0), -topic["counts"]["dead"], str(topic["topic"])


def schedules(some: Iterable[Fields]) -> RenderableType:
    """A row per schedule. Those whose next time comes first are on top."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", overflow="fold")
    table.add_column("topic", overflow="fold")
    table.add_column("when", overflow="fold")
    table.add_column("zone", overflow="fold")
    table.add_column("next", no_wrap=True)
    table.add_column("last", no_wrap=True)
    for schedule in sorted(some, key=lambda each: (each["next"] or [math.inf], each["name"])):
        every, last = schedule.get("every"), schedule["last"]
        table.add_row(
            Text(humanize.clean(schedule["name"])),
            Text(humanize.clean(schedule["topic"])),
            Text(humanize.clean(schedule["cron"]) if every is None else f"every {humanize.span(every)}"),
            Text(humanize.clean(schedule.get("zone", ""))),
            _next(schedule),
            Text("" if last is None else humanize.clock(last)),
        )
    return table


def _next(schedule: Fields) -> Text:
    if schedule["paused"]:
        return Text("paused", style="yellow")
    return Text(humanize.clock(schedule["next"][0]) if schedule["next"] else "never")


def workers(some: Iterable[Fields]) -> RenderableType:
    """A row per worker, sorted by name."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("worker", overflow="fold")
    table.add_column("topics", overflow="fold")
    table.add_column("state", overflow="fold")
    table.add_column("jobs", no_wrap=True, justify="right")
    table.add_column("last pop", no_wrap=True)
    table.add_column("since", no_wrap=True)
    table.add_column("through", overflow="fold")
    for worker in sorted(some, key=lambda each: (each["worker"], each["topics"])):
        table.add_row(
            Text(humanize.clean(worker["worker"])),
            Text(humanize.clean(", ".join(worker["topics"]))),
            Text(_work(worker), style=_WORK_COLOURS.get(worker["state"], "")),
            Text(humanize.number(worker["jobs"])),
            Text(humanize.ahead(worker["last_pop"])),
            Text(humanize.ahead(worker["since"])),
            Text(humanize.clean(worker["instance"])),
        )
    return table


def _work(worker: Fields) -> str:
    """What a worker does, or why it does nothing."""
    if worker["state"] == "blocked":
        return f"blocked: {humanize.clean(worker['blocked'])}"
    if worker["state"] == "idle":  # it may have ended without reporting it
        return f"idle, last seen {humanize.ahead(worker['last_pop'])}"
    return str(worker["state"])


def instances(some: Sequence[Fields]) -> RenderableType:
    """A row per process. Versions stand out if they differ."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("instance", overflow="fold")
    table.add_column("host", overflow="fold")
    table.add_column("pid", no_wrap=True, justify="right")
    table.add_column("version", no_wrap=True)
    table.add_column("started", no_wrap=True)
    table.add_column("signed", no_wrap=True)
    table.add_column("timers", overflow="fold")
    table.add_column("parked", no_wrap=True, justify="right")
    are_mixed = len({each["version"] for each in some}) > 1
    for each in some:
        table.add_row(
            Text(humanize.clean(each["instance"] or "not known")),
            Text(humanize.clean(each["host"] or "")),
            Text("" if each["pid"] is None else str(each["pid"])),
            Text(humanize.clean(each["version"] or "not known"), style="bold yellow" if are_mixed else ""),
            Text("" if each["started"] is None else humanize.ahead(each["started"])),
            Text(humanize.ahead(each["signed"])),
            Text("not known" if each["timers"] is None else _timers(each["timers"])),
            Text(humanize.number(each["parked"])),
        )
    return table


def _timers(by_shard: Mapping[str, Sequence[int]]) -> str:
    """`8`, or over several shards `4 (shards 0, 2)`."""
    number = humanize.number(sum(map(len, by_shard.values())))
    shards = sorted(map(int, by_shard))
    return (
        number if shards in ([], [0]) else f"{number} ({'shard' if len(shards) == 1 else 'shards'} {_listed(shards)})"
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def settings(some: Iterable[Fields]) -> RenderableType:
    """A row per setting. Settings that are not defaults stand out."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", no_wrap=True)
    for each in some:
        value = each["value"]
        table.add_row(
            Text(humanize.clean(each["name"])),
            Text(humanize.clean(value) if isinstance(value, str) else humanize.body(value, None)),
            Text(humanize.clean(each["source"])),
            style="dim" if each["source"] == "default" else "bold",
        )
    return table


def policies(some: Iterable[Fields]) -> RenderableType:
    """A row for each setting that a topic overrides."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("topic", overflow="fold")
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold")
    for topic in some:
        for name in topic["own"]:
            row = (topic["topic"], name, humanize.body(topic[name], None))
            table.add_row(*(Text(humanize.clean(each)) for each in row))
    return table


def tokens(some: Iterable[Fields]) -> RenderableType:
    """A row per token."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", no_wrap=True)
    table.add_column("name", overflow="fold")
    table.add_column("may", overflow="fold")
    table.add_column("topics", overflow="fold")
    table.add_column("ends", no_wrap=True)
    table.add_column("last used", no_wrap=True)
    table.add_column("a second", no_wrap=True, justify="right")
    for token in some:
        table.add_row(
            Text(humanize.clean(token["id"])),
            Text(humanize.clean(token["name"])),
            Text(humanize.clean(", ".join(token["rights"]))),
            Text(humanize.clean(", ".join(token["topics"])) or "all"),
            _token_end(token),
            Text("" if token["used"] is None else humanize.ahead(token["used"])),
            Text("" if token["rate"] is None else humanize.number(token["rate"])),
        )
    return table


def actions(some: Iterable[Fields]) -> RenderableType:
    """A row per action."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("began", no_wrap=True)
    table.add_column("who", overflow="fold")
    table.add_column("did", no_wrap=True)
    table.add_column("with", overflow="fold")
    table.add_column("outcome", no_wrap=True)
    table.add_column("changed", no_wrap=True, justify="right")
    table.add_column("from", overflow="fold")
    for action in some:
        table.add_row(
            Text(humanize.clock(action["at"])),
            Text(humanize.clean(action["actor"])),
            Text(humanize.clean(action["action"])),
            Text(humanize.clean(_object(action))),
            Text(humanize.clean(action["outcome"]), style="" if action["outcome"] == "OK" else "red"),
            Text(humanize.number(action["done"])),
            Text(humanize.clean(action.get("address", ""))),
        )
    return table


def _object(action: Fields) -> str:
    """What an action was about."""
    named = [
        str(action[name]) for name in ("topic", "id", "name", "state", "within", "kind", "operation") if name in action
    ]
    return " ".join([*named, *action.get("changed", ())])


def _token_end(token: Fields) -> Text:
    if token["state"] != "live":
        return Text(humanize.clean(token["state"]), style="red")
    return Text("never" if token["expires"] is None else humanize.ahead(token["expires"]))


def _paused(topic: Fields) -> str:
    """Whether a topic is paused, in few words, so that the names of topics have room."""
    if not topic["paused"]:
        return ""
    until = topic["paused_until"]
    return f"until {humanize.clock(until)}" if until else "yes"


def _pause_end(fields: Fields) -> str:
    until = fields.get("paused_until")
    return f"until {humanize.when(until)}" if until else "until it is resumed"


def stats(fields: Fields, rates: Mapping[str, float] | None = None) -> RenderableType:
    """The figures of a topic or of all topics; with `rates`, there is a column of rates per second."""
    oldest = fields["oldest_ready"]
    title = Text(humanize.clean(fields["topic"] or "all topics"), style="bold")
    waits = [] if oldest is None else [Text(f" the oldest ready job has waited {humanize.span(round(oldest, 1))}")]
    totals = [_totals(fields["totals"], rates)] if rates or any(fields["totals"].values()) else []
    due = [_due(fields["due"])] if any(fields["due"].values()) else []
    notes = [Text(f" {note}") for note in _notes(fields)]
    return Group(title, _counts(fields["counts"]), *waits, *notes, *totals, *due)


def _notes(fields: Fields) -> Iterator[str]:
    if fields.get("known") is False:
        yield humanize.unknown(fields["topic"])
    if fields.get("paused"):
        yield f"paused {_pause_end(fields)}"
    if "blocked" in fields:
        yield f"{humanize.number(fields['blocked'])} of the ready jobs wait for others of their key"
    newest = fields.get("newest_dead")
    if newest:
        yield humanize.clean(
            f"the newest dead letter died {humanize.ahead(newest['dead_since'])}: {humanize.death(newest)}"
        )


def _counts(counts: Mapping[str, int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for state in counts:
        table.add_column(_state(state), justify="right")
    table.add_row(*(humanize.number(count) for count in counts.values()))
    return table


def _totals(totals: Mapping[str, int], rates: Mapping[str, float] | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("in total")
    table.add_column("jobs", justify="right")
    if rates is not None:
        table.add_column("per second", justify="right")
    for name in dict.fromkeys([*(name for name, count in totals.items() if count), *(rates or ())]):
        rate = [] if rates is None else [f"{rates[name]:,.1f}" if name in rates else ""]
        table.add_row(Text(humanize.clean(name)), humanize.number(totals.get(name, 0)), *rate)
    return table


def _due(ranges: Mapping[str, int]) -> Table:
    """The histogram of due times, without its empty ranges."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("due in")
    table.add_column("jobs", justify="right")
    table.add_column(width=_BAR_WIDTH)
    most = max(ranges.values())
    for name, count in ranges.items():
        if count:
            bar = Bar(most, 0, count, width=_BAR_WIDTH, color="cyan")
            table.add_row(Text(humanize.clean(name.replace("_", " "))), humanize.number(count), bar)
    return table


def forecast(bins: Sequence[Fields]) -> RenderableType:
    """A row for each bin with jobs, or for each hour if there are many bins."""
    width = 3600 if len(bins) > _MOST_BINS else 60
    rows: dict[tuple[int, int], list[int]] = {}
    for each in bins:
        own = max(width, each["width"])
        row = rows.setdefault((int(each["begin"] // own * own), own), [0, 0])
        row[0] += each["jobs"]
        row[1] += each["scheduled"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("from", no_wrap=True)
    table.add_column("for", no_wrap=True)
    table.add_column("jobs", justify="right")
    table.add_column("scheduled", justify="right")
    table.add_column(width=_BAR_WIDTH)
    most = max(map(sum, rows.values()))
    for (begin, own), (jobs, scheduled) in sorted(rows.items()):
        bar = Bar(most, 0, jobs + scheduled, width=_BAR_WIDTH, color="cyan")
        table.add_row(humanize.clock(begin), humanize.span(own), humanize.number(jobs), humanize.number(scheduled), bar)
    return table


def figures(found: Fields) -> RenderableType:
    """A row for each bin, and a row of totals."""
    total = found["total"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True)
    table.add_column("from", no_wrap=True, footer="total")
    numbers = ("adds", "deliveries", "finishes")
    for name in numbers:
        table.add_column(name, justify="right", footer=humanize.number(total[name]))
    table.add_column("deaths", justify="right", footer=_deaths(total))
    for name in ("due_to_ready", "due_to_delivered"):
        label = name.removeprefix("due_to_")
        table.add_column(f"{label} p50", justify="right", no_wrap=True, footer=_late(total[name], "p50"))
        table.add_column("p99", justify="right", no_wrap=True, footer=_late(total[name], "p99"))
    for each in found["bins"]:
        late = [_late(each[name], share) for name in ("due_to_ready", "due_to_delivered") for share in ("p50", "p99")]
        counts = [humanize.number(each[name]) for name in numbers]
        table.add_row(humanize.clock(each["begin"]), *counts, _deaths(each), *late)
    return table


def _deaths(span: Fields) -> str:
    return humanize.number(sum(span["deaths"].values()))


def _late(lateness: Fields | None, share: str) -> str:
    """A lateness in words: in milliseconds if it is below a second."""
    if lateness is None:
        return ""
    late: float = lateness[share]
    return f"{late * 1000:.3g} ms" if late < 1 else humanize.span(late)


def sizing(needed: Fields) -> RenderableType:
    """What a load needs: a line for each part."""
    table = _named()
    table.add_row("jobs", f"{needed['jobs']:,} delayed, {needed['tombstones']:,} tombstones")
    table.add_row(
        "memory",
        f"{_megabytes(needed['redis_bytes'])} of jobs; maxmemory {_megabytes(needed['maxmemory_bytes'])}, "
        f"{_megabytes(needed['disk_bytes'])} of disk, over all servers",
    )
    table.add_row("Redis", f"{_servers(needed)}; {_busy(needed, 'redis_cores')}")
    table.add_row(
        "service",
        f"processes: {needed['processes']}, over two instances at least; {_megabytes(needed['service_bytes'])}; "
        + _busy(needed, "service_cores"),
    )
    return table


def _megabytes(count: float) -> str:
    return f"{math.ceil(count / 1e6):,} MB"


def _servers(needed: Fields) -> str:
    if needed["masters"] == 1:
        return "one server, one shard"
    return f"a Cluster of {needed['masters']} masters, shards = {needed['shards']}"


def _busy(needed: Fields, name: str) -> str:
    return f"{_cores(needed[name])} busy, {_cores(needed[name + '_in_batches'])} with batches of 100"


def _cores(cores: float) -> str:
    return "less than 0.1 cores" if cores < 0.1 else f"{cores:.1f} cores"
