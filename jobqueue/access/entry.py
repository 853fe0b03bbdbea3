"""The entry: what each request may do, by what it shows; those that may not come in are counted and logged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from buckets.errors import JobQueueError
from jobqueue.access.authentication import Authentication, digest_of
from jobqueue.access.grants import OPEN, Grant
from jobqueue.dialect_settings import DialectSettings
from jobqueue.errors import Unauthorized
from jobqueue.logs import Sparing
from jobqueue.metrics.process import Metrics


class Visitor(Protocol):
    """The connection that a request comes by."""

    @property
    def host(self) -> str:
        """The client's address, without a port."""

    @property
    def certificate_names(self) -> Sequence[str]:
        """The names in its client certificate."""


class Entry:
    """Lets requests in."""

    def __init__(self, authentication: Authentication, metrics: Metrics, refusals: Sparing) -> None:
        self.authentication = authentication
        self.for_all = OPEN if authentication.is_open else None
        """What every request may do, where no tokens are asked for."""
        self._known = authentication.known
        self._metrics = metrics
        self._refusals = refusals

    @property
    def is_open(self) -> bool:
        """Whether no tokens are asked for."""
        return self.authentication.is_open

    def grant(self, digest: bytes, visitor: Visitor) -> Grant:
        """What a request may do, by the digest of the token that it shows (empty: it shows none). Raises Unauthorized,
        Unavailable."""
        grant = self.for_all or self._known.get(digest)  # nearly always
        if grant is not None:
            grant.requests += 1
            return grant
        try:
            return self.authentication.grant(digest, () if digest else visitor.certificate_names)
        except JobQueueError as error:
            self._note(error, visitor.host, digest)
            raise

    def dialect_grant(self, shown: str | None, options: DialectSettings, host: str) -> Grant:
        """As `grant`, for a request to a dialect that shows a token, or none, from this address. Raises Unauthorized,
        Unavailable."""
        try:
            return self.authentication.in_dialect(shown, options.token, options.act_as)
        except JobQueueError as error:
            self._note(error, host, digest_of(shown) if shown else b"")
            raise

    def _note(self, error: JobQueueError, host: str, digest: bytes = b"") -> None:
        """Count and log that a request was not let in."""
        if not isinstance(error, Unauthorized):
            return
        ended = self.authentication.ended(digest) if digest else None
        verdict = "missing" if error.missing else "expired" if ended else "unknown"
        self._metrics.judged(verdict)
        self._refusals.note(host, verdict=verdict, address=host, **({"token": ended.id} if ended else {}))
