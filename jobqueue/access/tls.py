"""The service's own TLS: the certificate, its key, and the authorities of clients, which can be replaced while it runs.

They are files. When one of them has changed, and on SIGHUP, all are read again into a new context, and each handshake
uses the newest context. So an authority that was removed is no longer accepted; a context that only loaded further
files could not do that. Files that do not load change nothing.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from buckets.errors import Unfit
from jobqueue.settings import Settings

if TYPE_CHECKING:
    from jobqueue.metrics.process import Metrics


_FIRST = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_LONG = 0x80  # this bit marks a length that takes more than a byte
_VERSION, _UTC_TIME = 0xA0, 0x17


def names_of(certificate: Any) -> tuple[str, ...]:
    """The URIs and DNS names of a client, from its certificate as `ssl` returns it; empty if there is no
    certificate."""
    names = certificate.get("subjectAltName", ()) if certificate else ()
    return tuple(name for kind, name in names if kind in ("URI", "DNS"))


def expiry(pem: str) -> float:
    """When the first certificate in a PEM text expires, in Unix time. Raises ValueError if there is none."""
    found = _FIRST.search(pem)
    if found is None:
        raise ValueError("there is no certificate")
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(found[0]))
    except IndexError:
        raise ValueError("the certificate is damaged") from None


def _not_after(der: bytes) -> float:
    """The standard library reads the expiry only from the peer's certificate, so this reads the first fields in DER."""
    _, certificate, _ = _element(der)
    _, signed, _ = _element(certificate)
    kind, _, rest = _element(signed)  # the version, which may be missing, or the serial number
    for _ in range(3 if kind == _VERSION else 2):  # the serial number, the algorithm, the issuer
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest)
    _, _, later = _element(validity)
    kind, until, _ = _element(later)
    form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(until.decode("ascii"), form).replace(tzinfo=UTC).timestamp()


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """The tag and the content of the first element, and what follows it."""
    kind, length, start = der[0], der[1], 2
    if length & _LONG:
        start += length & ~_LONG
        length = int.from_bytes(der[2:start], "big")
    return kind, der[start : start + length], der[start + length :]


log = structlog.get_logger()

_LOOK_S = 60.0
_SAME_S = 1.0  # how long changed files must stay unchanged before they are read: one may still be being written
_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_LEAST = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_OF_CLIENTS = ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED")

Seen = tuple[tuple[int, int, int], ...]


class Files(NamedTuple):
    """Everything that was read from the files at once."""

    context: ssl.SSLContext
    authorities: bytes
    expires: float
    """Unix time at which the certificate expires."""


def read(settings: Settings) -> Files:
    """Read the files. Raises Unfit if they do not load."""
    try:
        authorities = Path(settings.tls_client_ca).read_bytes() if settings.tls_client_ca else b""
        expires = expiry(Path(settings.tls_cert).read_text())
        Path(settings.tls_key).open().close()  # its error names the file, an error of `ssl` does not
        return Files(_made_context(settings, authorities), authorities, expires)
    except (OSError, ValueError) as error:
        raise Unfit(f"the TLS files cannot be used: {_reason(error)}") from None


def _made_context(settings: Settings, authorities: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if settings.tls_client_ca:
        context.load_verify_locations(cadata=authorities.decode("ascii", "ignore"))  # comments may be anything
    context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_refuse)
    context.verify_mode = _VERIFY[settings.tls_client]
    context.minimum_version = _LEAST[settings.tls_min]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


class Tls:
    """What the handshakes of a process use. Raises Unfit for files that do not load."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._seen = self._changed = self._look()
        self.authority = 0
        """A counter that rises whenever the authorities of clients change."""
        self.on_new_authority: list[Callable[[], None]] = []
        """Called after such a change: existing connections must end."""
        self._take(read(settings))

    def reload(self) -> None:
        """Read the files again. If they do not load, the previous ones stay in use."""
        self._seen = self._look()
        before = self._files
        try:
            self._take(read(self._settings))
        except Unfit as error:
            log.error("tls.refused", error=error.message)
            return
        log.info("tls.reloaded", expires=datetime.fromtimestamp(self._files.expires, UTC).isoformat())
        if self._files.authorities != before.authorities:
            self.authority += 1
            for call in self.on_new_authority:
                call()

    @property
    def context(self) -> ssl.SSLContext:
        """The context of the next handshake."""
        return self._files.context

    def _take(self, files: Files) -> None:
        self._files = files
        self._metrics.tls_expires(files.expires)

    async def run(self) -> None:
        """Check every minute whether a file has changed."""
        pause = _LOOK_S
        while True:
            await asyncio.sleep(pause)
            pause = self.tick()

    def tick(self) -> float:
        """Read the files again if one has changed since they were read, but none since the last look. Returns the
        seconds until the next look."""
        found, before = self._look(), self._changed
        self._changed = found
        if found == self._seen:
            return _LOOK_S
        if found != before:
            return _SAME_S
        self.reload()
        return _LOOK_S

    def shook_hands(self, error: OSError | None = None) -> None:
        """Count a handshake, and how it ended."""
        outcome = "ok" if error is None else "certificate" if _is_of_client(error) else "failed"
        self._metrics.shook_hands(outcome)

    def _look(self) -> Seen:
        """The time, inode and size of each file, to detect changes; all 0 for a file that cannot be read."""
        settings = self._settings
        return tuple(map(_times, filter(None, (settings.tls_cert, settings.tls_key, settings.tls_client_ca))))


def _times(file: str) -> tuple[int, int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_ino, found.st_size


def _refuse() -> str:
    raise ValueError("the key has a password, and nobody is there to type it")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{error.reason or error}"
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)


def _is_of_client(error: OSError) -> bool:
    return isinstance(error, ssl.SSLError) and error.reason in _OF_CLIENTS
