"""The headers of Standard Webhooks (https://www.standardwebhooks.com): they prove the sender, the time and the body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

_PREFIX = "whsec_"
_LEAST, _MOST = 24, 64  # bytes of a secret


def secrets_of(text: str) -> list[bytes]:
    """The keys in a text of secrets separated by white space. Raises ValueError, whose message never shows a secret."""
    words = text.split()
    if not words:
        raise ValueError("it contains no secret")
    return [_key(word, place) for place, word in enumerate(words, 1)]


def _key(secret: str, place: int) -> bytes:
    encoded = secret.removeprefix(_PREFIX)
    try:
        # Some tools leave out the padding.
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or not _LEAST <= len(key) <= _MOST:
        raise ValueError(f"secret {place} must be {_PREFIX} and {_LEAST} to {_MOST} bytes in base64")
    return key


def webhook_id(job_id: str) -> str:
    """The id of a call: the job's id with each `.` as `%2E`, the same at each repetition.

    The signed text is separated by `.`, and one inside an id would make it ambiguous. A job's id contains no `%`, so no
    two jobs share a webhook id.
    """
    return job_id.replace(".", "%2E")


def headers(job_id: str, now: int, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
    """The headers of one attempt at `now`, in unix seconds; each key signs, and without keys there is no signature."""
    own = {"webhook-id": webhook_id(job_id), "webhook-timestamp": str(now)}
    if keys:
        signed = f"{own['webhook-id']}.{now}.".encode() + body
        own["webhook-signature"] = " ".join(f"v1,{_digest(key, signed)}" for key in keys)
    return own


def _digest(key: bytes, text: bytes) -> str:
    return base64.b64encode(hmac.digest(key, text, hashlib.sha256)).decode()
