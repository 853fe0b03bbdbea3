"""The part of `jobqueue check` that asks a running service, like any other client: whether it is ready, and what its
jobs need. It changes nothing, and looks at jobs twice, two seconds apart, to see which backlogs grow.
"""

from __future__ import annotations

import asyncio
import enum
import time
from typing import TYPE_CHECKING

import aiohttp
import orjson
from jobqueue_client.http import SPEAKS_TLS

from buckets.errors import JobQueueError
from buckets.namespace import look
from buckets.shards import Shards
from buckets.timers.cards import read_instances
from jobqueue.access.secret_values import without_secret
from jobqueue.cli.access import shown
from jobqueue.cli.ask import listing_pages
from jobqueue.cli.client import Client, Refusal, Unreachable, base_of, is_tls, reason, session_of
from jobqueue.health import jobs
from jobqueue.health.findings import Finding, Findings, Level
from jobqueue.health.jobs import Fields, Look
from jobqueue.redis_server.opening import redis_at

if TYPE_CHECKING:
    from jobqueue_client.access import Access, AccessFields

    from jobqueue.settings import Settings


_LOOK_S = 2.0  # between the two looks


async def check_jobs(client: Client, *, judges_schedules: bool) -> Findings:
    """All findings about the jobs of a service and, if `judges_schedules`, about its schedules, by the clock of this
    host."""
    try:
        async with client:
            async for finding in _looked(client, judges_schedules):
                yield finding
    except (Refusal, Unreachable) as error:
        yield Finding("bad", "jobs", str(error))


async def _looked(client: Client, judges_schedules: bool) -> Findings:
    before = jobs.ready_jobs(await _listed(client, "topics"))
    begun = time.monotonic()
    await asyncio.sleep(_LOOK_S)
    look = Look(await _listed(client, "topics"), (await client.ask("workers")).fields)
    passed_s = time.monotonic() - begun
    schedules = await _listed(client, "schedules", body=False) if judges_schedules else []
    late = {
        each["name"]: each["next"][0]
        for each in schedules
        if each["next"] and each["next"][0] < time.time() - jobs.SCHEDULE_LATE_S
    }
    found = [*jobs.judge_topics(look, before, passed_s), *jobs.judge_schedules(late)]
    for finding in found:
        yield finding
    deadly = jobs.deadly(look)
    for name in deadly[: jobs.MOST_DEADLY]:
        figures = (await client.ask("stats", topic=name)).fields
        yield jobs.deaths(name, figures["counts"]["dead"], figures.get("newest_dead"))
    if len(deadly) > jobs.MOST_DEADLY:
        yield jobs.more_deadly(len(deadly) - jobs.MOST_DEADLY)
    if not (found or deadly):
        yield jobs.no_trouble(look)


async def _listed(client: Client, name: str, **fields: object) -> list[Fields]:
    """All rows of a listing."""
    pages = [page.fields[name] async for page in listing_pages(client, name, fields)]
    return [row for page in pages for row in page]


NO_SERVICE = "does not answer like a service"
_READY_S = 5.0  # for a service to answer


async def check_running(
    url: str, files: AccessFields | None = None, absent: Level = "bad", *, is_known: bool = False
) -> Findings:
    """The findings about a running service and its jobs. Raises UsageError for files that cannot be used.

    `absent`: the level of the finding that no service is listening. `is_known`: True if the service's settings and
    Redis were already examined from here.
    """
    access = shown(url, files or {})
    service = await _service(url.rstrip("/"), access, absent)
    yield service
    if service.level != "ok":
        return
    own = await _seen_by_itself(Client(url, access))
    for finding in own or ():
        # The service knows the time of Redis, by which schedules are judged late.
        if finding.subject == "schedules" or not (is_known or _is_looked_at_here(finding)):
            yield finding
    async for finding in check_jobs(Client(url, access), judges_schedules=own is None):
        yield finding


def _is_looked_at_here(finding: Finding) -> bool:
    """Return True for a finding about something that is also examined from here, because growth only shows between two
    looks. Return False for the finding about jobs that Redis lost."""
    is_of_jobs = finding.subject == "jobs" and finding.level == "ok"
    return is_of_jobs or finding.subject in ("service", "topics") or finding.subject.startswith("topic ")


async def _seen_by_itself(client: Client) -> list[Finding] | None:
    """The findings of a service about its Redis, its journal, and who has access; None if the service does not report
    them to us."""
    try:
        async with client:
            answer = await client.ask("health")
    except (Refusal, Unreachable):  # an older service, or our token may not look, which `check_jobs` reports
        return None
    return [Finding(each["level"], each["subject"], each["words"]) for each in answer.fields.get("findings", ())]


class Whose(enum.Enum):
    """Who owns the service that answers at the address in our settings."""

    NOBODYS = enum.auto()  # no service answers
    OURS = enum.auto()  # it has our settings, as far as it lets us know
    OTHERS = enum.auto()  # it has other settings


async def whose_service(url: str, files: AccessFields | None, redis_url: str, chosen: Settings) -> Whose:
    """Whose service answers at a URL. It is ours if an instance that it lists is also in our Redis and namespace.
    `redis_url`: an empty string if our Redis does not run. Raises UsageError for files that cannot be used."""
    access = shown(url, files or {})
    finding = await _service(url, access, "warn")
    if finding.level == "warn" or NO_SERVICE in finding.sentence or SPEAKS_TLS in finding.sentence:
        return Whose.NOBODYS
    try:
        async with Client(url, access) as client:
            rows = (await client.ask("instances")).fields["instances"]
        its = {(each["host"], each["pid"]) for each in rows if each["pid"]}
        ours = await _instances(redis_url, chosen) if redis_url else set()
    except (Refusal, Unreachable, JobQueueError):  # without these answers, the service counts as ours
        return Whose.OURS
    return Whose.OURS if not its or its & ours else Whose.OTHERS


async def _instances(url: str, chosen: Settings) -> set[tuple[str, int]]:
    """Host and pid of the instances in a Redis. Raises JobQueueError."""
    redis = redis_at(url, chosen.redis_timeout_s)
    try:
        numbers = await look(redis, chosen.namespace)
        found = await read_instances(Shards(redis, chosen.namespace, *numbers)) if numbers else []
        return {(each.about.host, each.about.pid) for each in found if each.about}
    finally:
        await redis.close()


async def _service(url: str, access: Access, absent: Level) -> Finding:
    """The finding whether a service answers at a URL, and is ready."""
    place = without_secret(url) if "@" in url else url
    headers = {} if access.token.authorization is None else {"Authorization": access.token.authorization}
    timeout = aiohttp.ClientTimeout(total=_READY_S)
    try:
        async with (
            session_of(access, url) as session,
            session.get(f"{base_of(url)}/readyz", headers=headers, timeout=timeout) as response,
        ):
            answer = orjson.loads(await response.read())
            missing = [name for name, passed in answer.get("checks", {}).items() if not passed]
            is_ready = answer["ready"]
    except aiohttp.ClientSSLError as error:
        return Finding("bad", "service", f"{place}: {reason(error)}")
    except aiohttp.ClientConnectorError:
        return Finding(absent, "service", f"none is listening at {place}; jobqueue serve starts one")
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        return Finding("bad", "service", f"{place} is not a URL such as http://127.0.0.1:8000")
    except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = f"the program at {place} {NO_SERVICE}: {error or 'no answer in time'}"
        return Finding("bad", "service", f"{place}: {SPEAKS_TLS}" if await is_tls(url, error) else why)
    if is_ready:
        return Finding("ok", "service", f"ready at {place}")
    which = ", ".join(missing) or "a token with the right look shows which"
    return Finding("bad", "service", f"the one at {place} is not ready; failed checks: {which}")
