"""The part of `jobqueue check` that asks a running service: whether it is ready, and what its jobs need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import orjson
from jobqueue_client.http.words import SPEAKS_TLS

from jobqueue.access.secret_values import without_secret
from jobqueue.cli.access import shown
from jobqueue.cli.check.jobs import check_jobs
from jobqueue.cli.client import Client, base_of, is_tls, reason, session_of
from jobqueue.health.findings import Finding, Findings, Level

if TYPE_CHECKING:
    from jobqueue_client.access.options import Access, AccessFields

_READY_S = 5.0  # for a service to answer


async def check_running(url: str, files: AccessFields | None = None, absent: Level = "bad") -> Findings:
    """The findings about a running service and its jobs. Raises UsageError for files that cannot be used.

    `absent`: the level of there being none.
    """
    access = shown(url, files or {})
    service = await _service(url.rstrip("/"), access, absent)
    yield service
    if service.level == "ok":
        async for finding in check_jobs(Client(url, access)):
            yield finding


async def _service(url: str, access: Access, absent: Level) -> Finding:
    """Whether a service answers at a URL."""
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
        why = f"the program at {place} does not answer like a service: {error or 'no answer in time'}"
        return Finding("bad", "service", f"{place}: {SPEAKS_TLS}" if await is_tls(url, error) else why)
    if is_ready:
        return Finding("ok", "service", f"ready at {place}")
    which = ", ".join(missing) or "a token with the right look shows which"
    return Finding("bad", "service", f"the one at {place} is not ready; failed checks: {which}")
