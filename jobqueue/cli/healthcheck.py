"""`jobqueue healthcheck`: says by its exit code whether the service on this machine is ready.

Container engines run it every few seconds. So it imports only the modules of the standard library that it needs, and
has its own code to read the few settings that it needs, by the rules of `jobqueue.settings`. Loading that module would
take three times the CPU time that the command takes beyond the start of Python.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

SUMMARY = "Say by the exit code whether the service here is ready"
DETAILS = (
    "Asks /readyz at the socket, host and port of the settings: flags, then the environment, then the file. Where the"
    " settings name a Unix socket, that is asked, unless --host or --port is given. Over TLS, the certificate of the"
    " settings is trusted, and no other. Exit code 1: it is not ready, or does not answer within 5 s; 2: it could not"
    " be asked."
)
VALUES = (
    ("config", "FILE", "settings file (TOML), as for serve"),
    ("host", "HOST", "address that it listens on [127.0.0.1]"),
    ("port", "PORT", "port that it listens on [8000]"),
)
LIVE = "ask /healthz instead: whether the process answers, with or without Redis"

HEALTHY, UNHEALTHY, NOT_ASKED = 0, 1, 2

_SETTINGS = {"host": "127.0.0.1", "port": "8000", "socket": "", "tls_cert": "", "tls_client": "none"}
LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - asked, not bound
_WITHIN_S = 5.0
_MOST_BYTES = 65_536
_EXCHANGED_S = 120.0  # within which a service has loaded a replaced certificate; it looks every minute
_OK = 200


class NotAsked(Exception):
    """With these settings no service can be asked; the message says why."""


class Place(NamedTuple):
    """Where a service listens: at a Unix socket, if one is named, else at a port."""

    host: str
    port: int
    socket: str
    tls_cert: str

    def __str__(self) -> str:
        if self.socket:
            return self.socket
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"


def main(arguments: list[str]) -> int:
    """Parse the arguments of `jobqueue healthcheck`, ask the service, and return the exit code."""
    from argparse import ArgumentParser  # noqa: PLC0415 - not needed where click has parsed the arguments

    parser = ArgumentParser("jobqueue healthcheck", add_help=False, allow_abbrev=False)
    for name, metavar, _ in VALUES:
        parser.add_argument(f"--{name}", metavar=metavar)
    parser.add_argument("--live", action="store_true")
    return run(**vars(parser.parse_args(arguments)))


def run(config: str | None, host: str | None, port: str | None, live: bool) -> int:
    """Ask the service, print one line with the result, and return the exit code."""
    try:
        place = place_of({"host": host, "port": port}, config, os.environ)
    except NotAsked as error:
        print(f"Error: {error}", file=sys.stderr)
        return NOT_ASKED
    fault = fault_at(place, "/healthz" if live else "/readyz")
    if fault:
        print(f"Error: the service at {place} {fault}", file=sys.stderr)
        return UNHEALTHY
    print(f"the service at {place} is {'live' if live else 'ready'}")
    return HEALTHY


def place_of(flags: Mapping[str, str | None], config: str | None, environment: Mapping[str, str]) -> Place:
    """Where a service with these settings listens. Raises NotAsked."""
    given = {name: value for name, value in flags.items() if value is not None}
    file = config or environment.get("JOBQUEUE_CONFIG")
    values = _SETTINGS | (_read(file) if file else {}) | dict(_of_environment(environment)) | given
    path = "" if given else values["socket"]
    port = values["port"]
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise NotAsked(f"port must be a number up to 65535, not {port!r}")
    if not (int(port) or path):
        raise NotAsked("port = 0 is any free port, which only the log of the service names: use --port, or set socket")
    if not path and values["tls_client"] == "required":
        raise NotAsked('tls_client = "required" lets in nobody without a certificate; set socket, where none is needed')
    return Place(LOOPBACK.get(values["host"], values["host"]), int(port), path, values["tls_cert"])


def _of_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The settings in the environment, except the variables that Kubernetes and Docker set for a service that is itself
    called jobqueue, such as JOBQUEUE_PORT=tcp://10.0.0.1:8000."""
    for name in _SETTINGS:
        value = environment.get(f"JOBQUEUE_{name.upper()}")
        if value is not None and not value.startswith(("tcp://", "udp://")):
            yield name, value


def _read(path: str) -> dict[str, str]:
    import tomllib  # noqa: PLC0415 - not everybody has a file

    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes 3 ms
            values = tomllib.load(file)
    except OSError as error:
        raise NotAsked(f"the settings file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise NotAsked(f"the settings file {path} is not TOML: {error}") from None
    return {name: str(values[name]) for name in _SETTINGS if name in values}


def fault_at(place: Place, path: str) -> str:
    """What is wrong with the service at a place, as the end of a sentence, or an empty string if nothing is wrong."""
    try:
        status, body = _answer(place, path)
    except TimeoutError:
        return f"did not answer within {_WITHIN_S:.0f} s"
    except OSError as error:
        return _words(error)
    except ValueError:
        return "does not answer as HTTP"
    if status == _OK:
        return ""
    return f"is not ready{_failed(body)}" if status == 503 else f"answered {status} to GET {path}"


def _answer(place: Place, path: str) -> tuple[int, bytes]:
    """The status and the body of the answer. Raises OSError, and ValueError for an answer that is not HTTP."""
    until = time.monotonic() + _WITHIN_S
    with _connected(place) as connection:
        # This name is allowed whatever allowed_hosts says.
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        data = b""
        while len(data) < _MOST_BYTES:
            connection.settimeout(max(until - time.monotonic(), 0.001))
            some = connection.recv(_MOST_BYTES)
            if not some:
                break
            data += some
    head, _, body = data.partition(b"\r\n\r\n")
    version, status = head.split(maxsplit=2)[:2]
    if not version.startswith(b"HTTP/1."):
        raise ValueError
    return int(status), body


def _connected(place: Place) -> socket.socket:
    if place.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_WITHIN_S)
        connection.connect(place.socket)
        return connection
    secured = _securing(place.tls_cert) if place.tls_cert else None
    connection = socket.create_connection((place.host, place.port), _WITHIN_S)
    return secured(connection) if secured else connection


def _securing(file: str) -> Callable[[socket.socket], socket.socket]:
    """Returns a function that wraps a connection in TLS. It trusts only the certificate in this file, whatever names
    the certificate has, and whoever signed it."""
    import ssl  # noqa: PLC0415 - takes 5 ms

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if 0 <= time.time() - os.stat(file).st_mtime < _EXCHANGED_S:  # noqa: PTH116 - as above
        context.verify_mode = ssl.CERT_NONE  # the service may still show the previous one
    else:
        with open(file, encoding="ascii", errors="replace") as chain:  # noqa: PTH123 - as above
            own, end, _ = chain.read().partition("-----END CERTIFICATE-----")
        context.load_verify_locations(cadata=own + end)  # the certificates after it vouch for others, too
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context.wrap_socket


def _words(error: OSError) -> str:
    """Why there was no answer."""
    reason: str = getattr(error, "verify_message", "") or getattr(error, "reason", "") or ""
    if hasattr(error, "verify_message"):
        return f"shows another certificate than that of tls_cert, or one that does not hold: {reason}"
    file = f"{error.filename}: " if error.filename else ""
    return f"cannot be asked: {file}{reason or error.strerror or error}"


def _failed(body: bytes) -> str:
    """The checks that failed, as the end of a sentence; empty if the service does not name them, because it requires a
    token."""
    import json  # noqa: PLC0415 - only for this

    try:
        checks: dict[str, bool] = json.loads(body)["checks"]
    except (ValueError, LookupError, TypeError):
        return ""
    failed = ", ".join(name for name, passed in checks.items() if not passed)
    return f"; failed checks: {failed}" if failed else ""
