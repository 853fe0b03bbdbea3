# make dashboards
# It writes overview.json, topic.json and redis.json beside this file, for provisioning or for Grafana's import.
"""The dashboards of Grafana: objectives and load, one topic, Redis and the instances.

Panels stand in rows from left to right; the widths of a line add up to 24. What all instances read from Redis is taken
with max, what each process counts with sum, as in deploy/prometheus/rules.yaml, whose series the objectives use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.builders.common import ReduceDataOptions
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueColorMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER = Path(__file__).parent
UIDS = {name: f"jobqueue-{name}" for name in ("overview", "topic", "redis")}
"""By file."""

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_TAG = "jobqueue"
_OBJECTIVES = {
    "on_time": ("On time", 0.001, ""),
    "delivered": ("Delivered", 0.01, "{{topic}}"),
    "answers": ("Answers", 0.001, ""),
}
"""By the name in the rules: the title, the budget, which is a share of all events, and the legend of what it is by."""
_LINE, _THIRD, _HALF = 8, 8, 12  # the height of a panel, and widths


def _query(expression: str, legend: str = "") -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(_SOURCE).expr(expression).legend_format(legend or "__auto")


def _lines(title: str, means: str, unit: str, *queries: tuple[str, str], width: int = _THIRD) -> timeseries.Panel:
    """Lines over time. `queries`: expressions, each with its legend."""
    panel = timeseries.Panel().title(title).description(means).unit(unit).min(0).datasource(_SOURCE)
    for number, (expression, legend) in enumerate(queries):
        panel.with_target(_query(expression, legend).ref_id(chr(ord("A") + number)).range())
    return panel.height(_LINE).span(width)


def _number(title: str, means: str, unit: str, expression: str, legend: str, steps: list[Threshold]) -> stat.Panel:
    """What holds now, coloured by thresholds."""
    thresholds = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
    return (
        stat.Panel()
        .title(title)
        .description(means)
        .unit(unit)
        .datasource(_SOURCE)
        .thresholds(thresholds)
        .color_mode(BigValueColorMode.BACKGROUND)
        .reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_query(expression, legend).ref_id("A").instant())
        .height(_LINE // 2)
        .span(_THIRD)
    )


def _heat(title: str, means: str, metric: str, where: str) -> heatmap.Panel:
    """How many jobs were how late, over time."""
    expression = f"sum by (le) (increase({metric}_bucket{{{where}}}[$__rate_interval]))"
    return (
        heatmap.Panel()
        .title(title)
        .description(means)
        .unit("short")
        .datasource(_SOURCE)
        .y_axis(heatmap.YAxisConfig().unit("s"))
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64))
        .with_target(_query(expression, "{{le}}").ref_id("A").format(PromQueryFormat.HEATMAP).range())
        .height(_LINE)
        .span(_HALF)
    )


def _quantiles(metric: str, where: str, by: str = "") -> list[tuple[str, str]]:
    """The median and the 99th percentile of a histogram, in seconds."""
    rate = f"sum by (le{by and f', {by}'}) (rate({metric}_bucket{{{where}}}[$__rate_interval]))"
    name = by and f" {{{{{by}}}}}"
    return [(f"histogram_quantile({share}, {rate})", f"p{share * 100:.0f}{name}") for share in (0.5, 0.99)]


def _rate(metric: str, by: str, where: str = 'job="$job"', own: bool = True) -> tuple[str, str]:
    """A rate by a label. `own`: whether each process counts for itself, or all read the same from Redis."""
    rate = f"rate({metric}{{{where}}}[$__rate_interval])"
    each = rate if own else f"max by (topic, {by}) ({rate})"
    return f"sum by ({by}) ({each})", f"{{{{{by}}}}}"


def _of_instances(metric: str, aggregation: str = "max") -> tuple[str, str]:
    """A gauge by instance."""
    return f'{aggregation} by (instance) ({metric}{{job="$job"}})', "{{instance}}"


def _budgets() -> Iterable[Any]:
    steps = [Threshold(color="red"), Threshold(value=0, color="orange"), Threshold(value=0.25, color="green")]
    for name, (title, budget, legend) in _OBJECTIVES.items():
        errors, events = (
            f'sum_over_time(jobqueue:{name}:{what}_rate5m{{job="$job"}}[28d])' for what in ("errors", "events")
        )
        yield _number(
            f"{title}: budget left",
            f"What is left of the errors allowed in 28 days, {budget:.1%} of all. Below 0 the objective is missed.",
            "percentunit",
            f"1 - {errors} / {events} / {budget}",
            legend,
            steps,
        )


def _burns() -> Iterable[Any]:
    for name, (title, budget, legend) in _OBJECTIVES.items():
        yield _lines(
            f"{title}: burn",
            "How many times faster than in 28 days the budget is used up, by the last hour, 6 hours and 3 days. "
            "Pages at 14.4 and 6, tickets at 3 and 1.",
            "none",
            *(
                (f'jobqueue:{name}:error_ratio_rate{window}{{job="$job"}} / {budget}', f"{window} {legend}".strip())
                for window in ("1h", "6h", "3d")
            ),
        )


def _lateness(where: str) -> Iterable[Any]:
    yield _heat(
        "From due to ready",
        "How late timers made jobs ready, by Redis's clock. This is the service's own lateness.",
        "jobqueue_due_to_ready_seconds",
        where,
    )
    yield _heat(
        "From due to delivered",
        "How late jobs reached a worker for the first time. What is more than on the left is waiting for workers.",
        "jobqueue_due_to_delivered_seconds",
        where,
    )


def _overview() -> dashboard.Dashboard:
    return _dashboard(
        "overview",
        "Jobqueue: overview",
        ("Objectives", [*_budgets(), *_burns()]),
        ("Lateness", _lateness('job="$job"')),
        ("Jobs", _jobs()),
        ("Commands", _commands()),
    )


def _jobs() -> Iterable[Any]:
    yield _lines(
        "Jobs by state",
        "Delayed jobs are not due; ready ones wait for a worker, reserved ones are with one; dead ones wait for you.",
        "short",
        ('sum by (state) (max by (topic, state) (jobqueue_jobs{job="$job"}))', "{{state}}"),
    )
    yield _lines(
        "What happens to jobs",
        "Jobs a second by what happened: created, delivered, redelivered, finished, died.",
        "ops",
        _rate("jobqueue_job_events_total", "event", own=False),
    )
    yield _lines(
        "Topics that wait longest",
        "How long the oldest ready job of a topic has waited: the ten longest. A click leads to the topic.",
        "s",
        ('topk(10, max by (topic) (jobqueue_oldest_ready_age_seconds{job="$job"}))', "{{topic}}"),
    ).data_links(
        [
            dashboard.DashboardLink("${__field.labels.topic}").url(
                f"/d/{UIDS['topic']}?${{datasource:queryparam}}&${{job:queryparam}}&var-topic=${{__field.labels.topic}}"
                "&${__url_time_range}"
            )
        ]
    )


def _commands() -> Iterable[Any]:
    yield _lines(
        "Commands by code",
        "Answers a second by code. UNAVAILABLE, INTERNAL and NO_ROOM count against the objective of answers.",
        "ops",
        _rate("jobqueue_commands_total", "code"),
    )
    yield _lines("Commands by name", "Commands a second by name.", "ops", _rate("jobqueue_commands_total", "command"))
    yield _lines(
        "Time of a command",
        "From reading a command to its answer. Pops that wait are left out.",
        "s",
        *_quantiles("jobqueue_command_duration_seconds", 'job="$job", command!="pop_waiting"'),
    )


def _topic() -> dashboard.Dashboard:
    return _dashboard("topic", "Jobqueue: topic", ("$topic", _of_topic()), ("Lateness", _lateness(_OF_TOPIC)))


_OF_TOPIC = 'job="$job", topic="$topic"'


def _of_topic() -> Iterable[Any]:
    yield _lines(
        "Jobs by state",
        "Delayed jobs are not due; ready ones wait for a worker, the blocked ones of them for their key; reserved ones "
        "are with one; dead ones wait for you.",
        "short",
        (f"max by (state) (jobqueue_jobs{{{_OF_TOPIC}}})", "{{state}}"),
        (f"max by (topic) (jobqueue_blocked_jobs{{{_OF_TOPIC}}})", "blocked"),
    )
    yield _lines(
        "What happens to jobs",
        "Jobs a second by what happened. Redelivered: their lease ended, or their worker released them.",
        "ops",
        _rate("jobqueue_job_events_total", "event", _OF_TOPIC, own=False),
    )
    yield _lines(
        "Oldest ready job",
        "How long it has waited. It grows while nobody works on the topic, or while it is paused.",
        "s",
        (f"max by (topic) (jobqueue_oldest_ready_age_seconds{{{_OF_TOPIC}}})", "waits"),
    )
    yield _lines(
        "Workers",
        "Workers that poll the topic, those of them that take no jobs now (sinks that cannot hand them on), and whether"
        " it is paused (1).",
        "none",
        (f"max by (topic) (jobqueue_polling_workers{{{_OF_TOPIC}}})", "workers"),
        (f"max by (topic) (jobqueue_blocked_workers{{{_OF_TOPIC}}})", "blocked"),
        (f"max by (topic) (jobqueue_topic_paused{{{_OF_TOPIC}}})", "paused"),
        width=_HALF,
    )
    yield _lines(
        "From due to delivered: quantiles",
        "The median and the 99th percentile of the time from due to the first delivery.",
        "s",
        *_quantiles("jobqueue_due_to_delivered_seconds", _OF_TOPIC),
        width=_HALF,
    )
    yield _lines(
        "Dead letters",
        "Jobs that ran out of tries or time, or whose worker gave up, until they are kicked or deleted.",
        "short",
        (f'max by (topic) (jobqueue_jobs{{{_OF_TOPIC}, state="dead"}})', "dead"),
        width=_HALF,
    )
    yield _lines(
        "Oldest dead letter",
        "For how long it has been dead. Dead letters are deleted after dead_age_s, by default after 30 days.",
        "s",
        (f"max by (topic) (jobqueue_oldest_dead_age_seconds{{{_OF_TOPIC}}})", "dead for"),
        width=_HALF,
    )


def _redis() -> dashboard.Dashboard:
    return _dashboard(
        "redis",
        "Jobqueue: Redis and instances",
        ("Redis", _of_redis()),
        ("Calls to Redis", _calls()),
        ("Timers", _timers()),
        ("Processes", _processes()),
    )


_EXPORTED = 'job="$redis_job"'


def _of_redis() -> Iterable[Any]:
    yield _lines(
        "Memory",
        "What Redis uses, and its maxmemory (0: none). At the limit adds are refused.",
        "bytes",
        ('max by (server) (jobqueue_redis_memory_used_bytes{job="$job"})', "used {{server}}"),
        ('max by (server) (jobqueue_redis_memory_max_bytes{job="$job"})', "maxmemory {{server}}"),
    )
    yield _lines(
        "Commands",
        "Commands that Redis carries out a second, those inside scripts included.",
        "ops",
        (f"sum by (instance) (rate(redis_commands_processed_total{{{_EXPORTED}}}[$__rate_interval]))", "{{instance}}"),
    )
    yield _lines(
        "Answers the service",
        "1 while Redis answers the scrape of an instance within three seconds.",
        "none",
        _of_instances("jobqueue_redis_up", "min"),
    )
    yield _lines(
        "CPU",
        "Cores that Redis uses. Its main thread has one: near 1 it is the limit of the namespace.",
        "none",
        (
            f"sum by (instance) (rate(redis_cpu_user_seconds_total{{{_EXPORTED}}}[$__rate_interval])"
            f" + rate(redis_cpu_sys_seconds_total{{{_EXPORTED}}}[$__rate_interval]))",
            "{{instance}}",
        ),
    )
    yield _lines(
        "Replicas",
        "Replicas that are connected to each Redis.",
        "none",
        (f"max by (instance) (redis_connected_slaves{{{_EXPORTED}}})", "{{instance}}"),
    )
    yield _lines(
        "Clients",
        "Connections to Redis.",
        "none",
        (f"max by (instance) (redis_connected_clients{{{_EXPORTED}}})", "{{instance}}"),
    )


def _calls() -> Iterable[Any]:
    yield _lines(
        "Calls by script",
        "Calls a second, by script or plain command.",
        "ops",
        _rate("jobqueue_redis_calls_total", "script"),
    )
    yield _lines(
        "Time of a call",
        "From a call to its answer, with waits and retries. Above some milliseconds Redis or its machine is slow.",
        "s",
        *_quantiles("jobqueue_redis_call_duration_seconds", 'job="$job"'),
    )
    yield _lines(
        "Failed calls",
        "Calls a second that failed, by code. Refusals are not failures.",
        "ops",
        _rate("jobqueue_redis_errors_total", "code"),
    )
    yield _lines(
        "Durable changes",
        "Changes a second that asked for replicated or fsynced, by what they reached. Local: not what was asked for.",
        "ops",
        _rate("jobqueue_durable_total", "reached"),
        width=_HALF,
    )
    yield _lines(
        "Time to be durable",
        "How long WAIT and WAITAOF take.",
        "s",
        *_quantiles("jobqueue_fence_duration_seconds", 'job="$job"'),
        width=_HALF,
    )


def _timers() -> Iterable[Any]:
    yield _lines(
        "Timers and who runs them",
        "Locks of timers by instance, and all timers. Where the locks are fewer, some jobs do not become ready.",
        "none",
        _of_instances("jobqueue_locks_held", "sum"),
        ('max by (job) (jobqueue_timers{job="$job"})', "all timers"),
    )
    yield _lines(
        "Live instances",
        "Processes that share the timers.",
        "none",
        ('max by (job) (jobqueue_instances{job="$job"})', "instances"),
        ('count by (version) (jobqueue_build_info{job="$job"})', "version {{version}}"),
    )
    yield _lines(
        "Clock",
        "Redis's clock minus that of each instance's host. Below 0: Redis is behind.",
        "s",
        _of_instances("jobqueue_clock_offset_seconds"),
    ).min(-1)


def _processes() -> Iterable[Any]:
    yield _lines(
        "CPU",
        "Cores by instance; only where it is a single process.",
        "none",
        _rate("process_cpu_seconds_total", "instance"),
    )
    yield _lines(
        "Memory",
        "Resident memory by instance; only where it is a single process.",
        "bytes",
        _of_instances("process_resident_memory_bytes"),
    )
    yield _lines(
        "Open files",
        "By instance; only where it is a single process. Each connection is one.",
        "none",
        _of_instances("process_open_fds"),
    )
    yield _lines(
        "Pops that wait",
        "Pops that wait for a job, by instance.",
        "none",
        _of_instances("jobqueue_parked_pops", "sum"),
        width=_HALF,
    )
    yield _lines(
        "Who comes in",
        "Requests a second by the verdict on who made them. Missing, unknown, expired: without a token that holds.",
        "ops",
        _rate("jobqueue_access_total", "verdict"),
        width=_HALF,
    )


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


_OWN_VARIABLES = {
    "topic": _variable("topic", "Topic", 'label_values(jobqueue_jobs{job="$job"}, topic)'),
    "redis": _variable("redis_job", "Redis", "label_values(redis_memory_used_bytes, job)"),
}
"""By file: the variable that the other dashboards do not have."""


_CONSOLE = "${console:raw}"
_IN_CONSOLE = {"overview": "/", "topic": "/topic?name=${topic:percentencode}", "redis": "/"}
"""By file: the page of the console that shows the same."""


def _dashboard(name: str, title: str, *rows: tuple[str, Iterable[Any]]) -> dashboard.Dashboard:
    links = dashboard.DashboardLink("Jobqueue").type(DashboardLinkType.DASHBOARDS).tags([_TAG])
    board = (
        dashboard.Dashboard(title)
        .uid(UIDS[name])
        .description("Written by deploy/grafana/dashboards.py: change that file, or save a copy.")
        .tags([_TAG])
        .time("now-3h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(links.include_vars(True).keep_time(True))
        .link(dashboard.DashboardLink("Console").type(DashboardLinkType.LINK).url(f"{_CONSOLE}{_IN_CONSOLE[name]}"))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable("job", "Job", "label_values(jobqueue_build_info, job)"))
        .with_variable(dashboard.TextBoxVariable("console").label("Console").default_value("http://127.0.0.1:8001"))
    )
    if name in _OWN_VARIABLES:
        board.with_variable(_OWN_VARIABLES[name])
    for row, panels in rows:
        board.with_row(dashboard.Row(row))
        for panel in panels:
            board.with_panel(panel)
    return board


def made() -> dict[str, str]:
    """The text of each file by its name."""
    return {f"{name}.json": _text(build()) for name, build in _BUILDS.items()}


_BUILDS = {"overview": _overview, "topic": _topic, "redis": _redis}


def _text(board: dashboard.Dashboard) -> str:
    """The builders give the panels no ids, and Grafana's links to a panel need them."""
    built = board.build()
    for number, panel in enumerate(built.panels or [], 1):
        panel.id_val = number
    return json.dumps(built, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    for file, text in made().items():
        (FOLDER / file).write_text(text)
