"""The console beside the workers of a service: where it listens, where it asks the service, and whether it may start.

Its process (jobqueue/cli/console/beside.py) is a client of the service like any other, and so belongs to a layer above
this module.
"""

from __future__ import annotations

import importlib.util

from buckets.errors import Unfit
from jobqueue.access.modes import beyond_loopback
from jobqueue.errors import missing_library
from jobqueue.settings import Settings
from jobqueue.web.port import url_of

PROGRAM = "jobqueue.cli.console.beside"
"""The module of its process."""
_LIBRARY = "jinja2"
_ASKED_AT = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - asked, not bound


async def check_may_start(settings: Settings) -> None:
    """Raise Unfit if the console lacks its library, if it would show an open service to other machines although no
    setting says that this is intended, or if its host cannot be resolved."""
    if importlib.util.find_spec(_LIBRARY) is None:
        raise Unfit(missing_library("console_port: the console", _LIBRARY, "console"))
    if settings.access == "tokens" or settings.allow_open:
        return
    beyond = await beyond_loopback(settings.console_host, "console_host")
    if beyond:
        raise Unfit(
            f"console_host = {settings.console_host!r} listens on {', '.join(beyond)}, and without tokens everybody who"
            ' reaches it sees all jobs: set access = "tokens", or allow_open = true if that is meant'
        )


def console_url(settings: Settings) -> str:
    """The URL of the console for people on this machine."""
    host = _ASKED_AT.get(settings.console_host, settings.console_host)
    url = url_of((host, settings.console_port), has_tls=bool(settings.console_tls_cert))
    return f"{url}{settings.console_base_path.rstrip('/')}/"


def service_url(settings: Settings) -> str:
    """The URL at which the console asks the service: that of the Unix socket, if there is one."""
    if settings.socket:
        return f"unix://{settings.socket}"
    return url_of((_ASKED_AT.get(settings.host, settings.host), settings.port))
