"""A callback: the request that a job's body describes, checked; and what the answer to it means for the job."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple

import msgspec
from jobqueue_client import Bury, Retry
from msgspec import UNSET, Struct
from yarl import URL

from jobqueue.schema.mistakes import Misfit, hint, misfit

_EXPECTED = {
    "url": "must be a string",
    "method": "must be one of GET, HEAD, POST, PUT, PATCH, DELETE",
    "headers": "must be an object of strings",
}
_LONGEST_NAME = 64  # of an unknown field or a header that is quoted in an error
_HOST = re.compile(r"[0-9a-z._-]+|[0-9a-f:.]+")  # no zone of an IPv6 address, nothing escaped
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
# The headers that belong to the connection, and those that only we set.
_NOT_THEIRS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect")
)
_OUR_PREFIXES = ("webhook-", "jobqueue-", "proxy-")


class BadCallback(Exception):
    """A body that does not describe a callback; the message says why, and names the field."""


class Callback(Struct, frozen=True):
    """A checked request."""

    method: str
    url: URL
    headers: Mapping[str, str]
    body: bytes | None


class _Body(Struct, forbid_unknown_fields=True):
    """A job's body as its producer writes it."""

    url: str
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] | None = None
    headers: dict[str, str] | None = None
    payload: Any = UNSET


def read(body: Any) -> Callback:
    """The callback that a job's decoded body describes. Raises BadCallback."""
    try:
        given = msgspec.convert(body, _Body)
    except msgspec.ValidationError as error:
        raise BadCallback(_explained(misfit(error))) from None
    method = given.method or "POST"
    if given.payload is not UNSET and method in ("GET", "HEAD"):
        raise BadCallback(f"payload: a {method} must not have one")
    try:
        url = target(given.url)
    except ValueError as error:
        raise BadCallback(f"url {error}") from None
    return Callback(method, url, _checked(given.headers or {}), _written(given.payload))


def target(text: str) -> URL:
    """Parse a URL that may be called, whatever host it names. Raises a ValueError that says what the URL must be,
    without quoting it."""
    expected = "must be an http or https URL with a host, without spaces and control characters"
    if not text.isprintable() or " " in text or "\\" in text:  # some parsers read \ as /, others do not
        raise ValueError(expected)
    try:
        url = URL(text)
        usable = url.scheme in ("http", "https") and _HOST.fullmatch(url.raw_host or "") and url.port
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(expected)
    if "@" in url.raw_authority:
        raise ValueError("must not hold a user or a password")
    return url.with_fragment(None)


def _written(payload: Any) -> bytes | None:
    if payload is UNSET:
        return None
    try:  # msgspec and orjson refuse large integers, or write numbers that are not finite as null
        return json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        raise BadCallback("payload cannot be written as JSON") from None


def _checked(headers: dict[str, str]) -> dict[str, str]:
    seen = set()
    for name, value in headers.items():
        lower = name.lower()
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise BadCallback(f"headers: {name[:_LONGEST_NAME]!r}: name and value must be printable ASCII")
        if lower in _NOT_THEIRS or lower.startswith(_OUR_PREFIXES):
            raise BadCallback(f"headers: {name[:_LONGEST_NAME]!r} may not be set by a job")
        if lower in seen:
            raise BadCallback(f"headers: {name[:_LONGEST_NAME]!r} appears twice")
        seen.add(lower)
    return headers


def _explained(wrong: Misfit) -> str:
    """Why a body is not a callback, in our words."""
    if wrong.unknown is not None:
        return f"unknown field {wrong.unknown[:_LONGEST_NAME]!r}{hint(wrong.unknown.lower(), _Body.__struct_fields__)}"
    if wrong.names:
        return f"{wrong.names[0]} {_EXPECTED[wrong.names[0]]}"
    return "url is missing" if wrong.missing else "the body must be an object with a url"


REDIRECTS = (301, 302, 303, 307, 308)
_TEMPORARY = (408, 425, 429)
_A_DAY_S = 86_400.0
_LEAST_S = 1.0  # a `Retry-After: 0` would burn all tries in a blink
_LONGEST_S = 3600.0


class Answer(NamedTuple):
    """The relevant parts of an HTTP answer."""

    status: int
    retry_after: str | None
    location: str | None


def judge(answer: Answer, method: str, now: float) -> None:
    """Return if the call succeeded. Raises Retry, with `after` if the answer says when, or Bury. `now`: unix s."""
    status = answer.status
    if 200 <= status < 300:
        return
    reason = f"HTTP {status}"
    if (after_s := retry_after_s(answer.retry_after, now)) is not None:
        raise Retry(after_s, reason=reason)
    if status >= 500 or status in _TEMPORARY:
        raise Retry(reason=reason)
    if status in REDIRECTS:
        followed = follows(status, method)
        raise Bury(f"redirected with {status}{' to nowhere' if followed else f': a {method} is not followed'}")
    raise Bury(reason)


def follows(status: int, method: str) -> bool:
    """Whether a redirect keeps the request as it is: for a 302, browsers turn a POST into a GET."""
    return status in (307, 308) or (status in REDIRECTS and method in ("GET", "HEAD"))


def retry_after_s(text: str | None, now: float) -> float | None:
    """The seconds that a `Retry-After` asks for, from 1 s to a day, or None if it is missing or unusable."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        after_s = float(text)
    else:
        try:
            date = parsedate_to_datetime(text)
            after_s = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(after_s, _LEAST_S), _A_DAY_S)


def pause_s(attempt: int) -> float:
    """The pause in s after the n-th try of a job without a backoff: 1 s, doubled each time, up to an hour."""
    return min(2.0 ** min(attempt - 1, 20), _LONGEST_S)
