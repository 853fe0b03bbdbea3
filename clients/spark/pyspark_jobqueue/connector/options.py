"""The options that reads and writes share (the service, the token, times), parsed as Spark passes them: as strings,
with names in any case.

No error message and no `repr` shows the token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pyspark_jobqueue.errors import BadOption, meant

VARIABLE = "JOBQUEUE_TOKEN"


def chosen(token: str | None, file: str | None) -> str | None:
    """The token from the option `token`, from the file that `tokenFile` names, or from the driver's environment; None
    without any of these. Raises BadOption."""
    if token is not None and file is not None:
        raise BadOption("options token and tokenFile exclude each other")
    if file is not None:
        return read_token(file)
    if token is not None:
        return _checked(token, "option token")
    given = os.environ.get(VARIABLE)
    return _checked(given, VARIABLE) if given else None


def read_token(file: str) -> str:
    """The token in a file. Raises BadOption."""
    return _checked(secret_in(file, "tokenFile"), "the token in the file of option tokenFile")


def secret_in(file: str, option: str) -> str:
    """The content of the file that an option names. Raises BadOption, which does not quote the content."""
    try:
        return Path(file).read_text("utf-8").strip()
    except OSError as error:
        raise BadOption(f"the file of option {option} cannot be read: {error.strerror}: {file}") from None
    except UnicodeDecodeError:  # this error quotes the content
        raise BadOption(f"the file of option {option} is not text: {file}") from None


def _checked(token: str, where: str) -> str:
    if not token or not (token.isascii() and token.isprintable()):
        raise BadOption(f"{where} must consist of printable ASCII characters")
    return token


# Options that Spark itself adds for SQL tables and streams.
_OF_SPARK = {"path", "serialization.format", "checkpointlocation", "queryname"}

# An SQL table has one set of options for reading and writing, so a read must tolerate the options of a write.
_PACE = ("batchSize", "inFlight", "rowsPerSecondPerTask")
OF_SERVICE = ("url", "token", "tokenFile", "timeoutMs", "maxRetries", "retryWaitMs")
OF_WRITES = (*_PACE, "ifExists", "bodyFormat", "onError", "dryRun", "reportPath", "traceparent", "tracestate")


class Given:
    """The options of a query. Each getter marks its option as known; `done` refuses the remaining options. All methods
    raise BadOption."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {name.lower(): text for name, text in options.items() if name.lower() not in _OF_SPARK}
        self._known: list[str] = []

    def text(self, name: str, default: str | None = None) -> str | None:
        """Any non-empty string, stripped."""
        self._known.append(name)
        text = self._left.pop(name.lower(), None)
        if text is not None and not text.strip():
            raise BadOption(f"option {name} is empty")
        return default if text is None else text.strip()

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and low <= int(text[:12]) <= high):
            raise BadOption(f"option {name} must be an integer from {low} to {high}, not {text!r}")
        return int(text)

    def choice(self, name: str, default: str, *allowed: str) -> str:
        text = self.text(name, default) or default
        if text.lower() not in allowed:
            raise BadOption(f"option {name} must be one of {', '.join(allowed)}, not {text!r}")
        return text.lower()

    def flag(self, name: str) -> bool:
        return self.choice(name, "false", "true", "false") == "true"

    def pass_over(self, *names: str) -> None:
        """Accept and ignore these options."""
        for name in names:
            self._left.pop(name.lower(), None)

    def done(self) -> None:
        """Raises BadOption for an unknown option, and suggests the nearest known option."""
        for name in self._left:
            raise BadOption(f"unknown option {name!r}{meant(name, self._known)} Available: {', '.join(self._known)}")


@dataclass(frozen=True)
class Target:
    """Where the service is, and how long to keep trying. Pickled to the tasks."""

    urls: tuple[str, ...]
    token: str | None = None
    token_file: str | None = None
    """The file that the token is from, or None; read again when the service refuses the token."""
    timeout_s: float = 30.0
    max_retries: int = 10
    retry_wait_s: float = 0.2

    @classmethod
    def of(cls, given: Given) -> Self:
        """Options url, token, tokenFile, timeoutMs, maxRetries and retryWaitMs. Raises BadOption."""
        urls = tuple(_url(url.strip()) for url in (given.text("url") or "").split(",") if url.strip())
        if not urls:
            raise BadOption(
                "option url is missing: the address of the service, such as http://localhost:8000. (For an SQL table, "
                "Spark does not pass on the OPTIONS of CREATE TABLE: add WITH (url = '…') to the statement)"
            )
        token, token_file = given.text("token"), given.text("tokenFile")
        return cls(
            urls,
            chosen(token, token_file),
            token_file,
            given.integer("timeoutMs", 30_000, 1, 3_600_000) / 1000,
            given.integer("maxRetries", 10, 0, 1000),
            given.integer("retryWaitMs", 200, 1, 10_000) / 1000,
        )

    def __repr__(self) -> str:
        return f"Target({', '.join(self.urls)})"  # without the token


def _url(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        (parts.hostname or "").encode("idna")
        parts.path.encode("ascii")
    except ValueError:  # an invalid port, or characters that no request may contain
        valid = False
    if not valid or "@" in parts.netloc or parts.query or parts.fragment or any(map(str.isspace, url)):
        raise BadOption(
            f"option url must be like http://localhost:8000, or several with commas; {without_secret(url)!r} is not"
        )
    return url.rstrip("/")


def without_secret(url: str) -> str:
    """A URL without the text before an @ and after a ?, which may contain a password."""
    return url.rpartition("@")[2].partition("?")[0]


_SPAN = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def moment(text: str, now: float, name: str) -> float:
    """The unix seconds of a time, or of a span before `now`. A time without an offset is in UTC. Raises BadOption, with
    the `name` of the option or flag in its message."""
    span = _SPAN.fullmatch(text)
    if span:
        return now - int(span[1]) * _SECONDS[span[2]]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{name} must be like 2026-11-21T10:00Z, or like 90m, 24h or 7d, not {text!r}") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
