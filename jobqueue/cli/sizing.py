"""`jobqueue sizing`: the memory, Redis servers, shards, cores and processes of the service that a load needs.

The constants are measured: `make bench-sizing` compares them with the machine it runs on, and docs/sizing.md says what
they mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import click
import orjson

from jobqueue.cli.options import DURATION
from jobqueue.schema import fields


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of a job in one state: a base, plus an amount per character of its id and per byte of its body."""

    base: float
    per_id: float
    per_body: float

    def of(self, id_characters: int, body_bytes: int) -> float:
        return self.base + self.per_id * id_characters + self.per_body * body_bytes


SIZES = {
    "delayed": Size(220, 3, 1.12),
    "far": Size(140, 2.2, 1.12),
    "ready": Size(120, 3, 1.12),
    "reserved": Size(265, 3, 1.12),
    "dead": Size(265, 3, 1.12),
    "tombstone": Size(180, 2.2, 0),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of a core for one job: add, due, pop and finish together."""

    redis_us: float
    service_us: float


# Cores differ by a factor of two and more. These figures are for a core that needs this long for a SET and a ZADD.
YARDSTICK_US = 10.0
ONE_A_REQUEST = Cost(29, 107)  # over 64 connections
IN_BATCHES = Cost(16, 13)  # of 100

_ID_CHARACTERS = 20
_BUSY = 0.5  # of a core at the peak: the rest is for working off a backlog
_SPARE = 1.5  # for hash tables, which double in steps, and for fragments
_DISK = 3.0  # the append-only file grows to twice the data, and a rewrite makes a new file beside it
_REDIS_BYTES = 10e9  # of jobs in one Redis; its pause at each fork grows by 20 to 34 ms a gigabyte
_LEAST_CLUSTER = 3
_SHARDS = 16  # the number of shards goes up in these steps, the default on a Cluster
_NEAR_S = 3600.0  # jobs due later than this wait in slices
_SHARDS_A_MASTER = 5  # each master has at least this many: fewer would spread the jobs unevenly
_PROCESS_BYTES, _SUPERVISOR_BYTES = 60e6, 50e6


@dataclass(frozen=True, slots=True)
class Load:
    """A load at its peak."""

    jobs: int
    """Jobs that are delayed at the same time."""
    body_bytes: int
    rate: float
    """Jobs a second that are added; as many end."""
    retention_s: float
    """For how long the tombstone of a job stays."""


def needs(load: Load) -> dict[str, float]:
    """What a load needs, by name: numbers of jobs, servers, shards and processes; bytes; cores that are busy at the
    peak. Raises ValueError if the load needs more shards than a namespace can have."""
    tombstones = round(load.rate * load.retention_s)
    near = min(load.jobs, round(load.rate * _NEAR_S))  # as many fall due in an hour
    memory = sum(
        number * SIZES[state].of(_ID_CHARACTERS, load.body_bytes)
        for state, number in (("delayed", near), ("far", load.jobs - near), ("tombstone", tombstones))
    )
    redis_cores, service_cores = load.rate * ONE_A_REQUEST.redis_us / 1e6, load.rate * ONE_A_REQUEST.service_us / 1e6
    masters = _masters(memory, redis_cores)
    processes = max(1, math.ceil(service_cores / _BUSY))
    return {
        "jobs": load.jobs,
        "tombstones": tombstones,
        "redis_bytes": round(memory),
        "maxmemory_bytes": round(memory * _SPARE),
        "disk_bytes": round(memory * _DISK),
        "masters": masters,
        "shards": _shards(masters),
        "redis_cores": redis_cores,
        "redis_cores_in_batches": load.rate * IN_BATCHES.redis_us / 1e6,
        "service_cores": service_cores,
        "service_cores_in_batches": load.rate * IN_BATCHES.service_us / 1e6,
        "processes": processes,
        "service_bytes": round(processes * _PROCESS_BYTES + (_SUPERVISOR_BYTES if processes > 1 else 0)),
    }


def _masters(memory: float, cores: float) -> int:
    wanted = max(math.ceil(memory / _REDIS_BYTES), math.ceil(cores / _BUSY))
    return 1 if wanted <= 1 else max(_LEAST_CLUSTER, wanted)


def _shards(masters: int) -> int:
    if masters == 1:
        return 1
    shards = _SHARDS * math.ceil(masters * _SHARDS_A_MASTER / _SHARDS)
    if shards > fields.MOST_SHARDS:
        raise ValueError(f"this takes {masters:,} servers of Redis, more than one namespace can be spread over")
    return shards


@click.command("sizing", short_help="Say what memory, servers and cores a load needs.")
@click.option("--jobs", type=click.IntRange(0), metavar="N", help="delayed at once, if more than rate times delay")
@click.option(
    "--rate", type=click.FloatRange(0), metavar="N", help="jobs a second, at the peak [jobs divided by delay]"
)
@click.option("--delay", type=DURATION, metavar="DURATION", help="of a job, on average")
@click.option(
    "--body-bytes",
    type=click.IntRange(0),
    metavar="N",
    default=250,
    help="of a job's body, headers and tags [250]",
)
@click.option(
    "--retention", type=DURATION, default="60s", metavar="DURATION", help="for which an ended job stays [60s]"
)
@click.option("--json", "as_json", is_flag=True, help="print it as JSON")
def sizing_command(
    jobs: int | None,
    body_bytes: int,
    rate: float | None,
    delay: float | None,
    retention: float,
    as_json: bool,
) -> None:
    """Say what memory, servers of Redis, shards and cores a load needs at its peak.

    Two of --jobs, --rate and --delay are needed. The figures are of slow cores, and of jobs whose ids have 20
    characters; docs/sizing.md has the formula.
    """
    from jobqueue.cli.output import Output  # noqa: PLC0415 - takes time that `--help` does not wait for

    output = Output(as_json)
    most, a_second = _load(jobs, rate, delay)
    try:
        needed = needs(Load(most, body_bytes, a_second, retention))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if output.as_json:
        click.echo(orjson.dumps(needed))
    else:
        output.table("sizing", needed)


def _load(jobs: int | None, rate: float | None, delay: float | None) -> tuple[int, float]:
    """The number of jobs that are delayed at the same time, and the jobs per second. Raises UsageError."""
    if jobs is not None and delay and rate is None:
        return jobs, jobs / delay
    if rate is None or (jobs is None and delay is None):
        raise click.UsageError("two of --jobs, --rate and --delay (above 0) are needed")
    return max(jobs or 0, round(rate * (delay or 0))), rate
