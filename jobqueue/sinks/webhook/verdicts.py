"""What an answer means for the job."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from jobqueue_client import Bury, Retry

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
    """The seconds that a `Retry-After` asks for, from 1 s to a day; None without a usable one."""
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
