"""Notifications to the service manager: the service is ready, reloads, stops, and still answers (sd_notify).

systemd names a datagram socket in NOTIFY_SOCKET, and in WATCHDOG_USEC how often it wants to hear of the service.
Without a socket there is nothing to notify, and every call does nothing.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import MutableMapping

import structlog

log = structlog.get_logger()

_SOCKET, _WATCHDOG, _WATCHDOG_PID = _VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_PATIENCE_S = 0.1  # for a manager that does not read: nothing is answered meanwhile


class Notify:
    """The manager's end. `address`: of its socket, `@` for an abstract one; empty: there is no manager.
    `watchdog_s`: it takes a service that is silent for this long for hung; 0: it does not watch."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = watchdog_s if address else 0.0
        self._stops = False

    def ready(self) -> None:
        """It listens, or has reloaded; not while it stops."""
        if not self._stops:
            self._send("READY=1")

    def reloading(self) -> None:
        """It reloads; `ready` follows."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """It has begun to stop."""
        self._stops = True
        self._send("STOPPING=1")

    def answers(self) -> None:
        """It is not hung."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        """Send, or log why not: a service does its work without a manager, too."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_PATIENCE_S)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            log.warning("notify.failed", message=message.partition("\n")[0], error=str(error))


def taken_from(environment: MutableMapping[str, str], pid: int) -> Notify:
    """What the environment asks of the process `pid`. The variables are removed, so that the processes that this one
    starts do not notify."""
    values = {name: environment.pop(name, "") for name in _VARIABLES}
    watchdog_s = 0.0
    if values[_WATCHDOG_PID] in ("", str(pid)):
        with contextlib.suppress(ValueError):
            watchdog_s = max(0, int(values[_WATCHDOG])) / 1e6
    return Notify(values[_SOCKET], watchdog_s)
