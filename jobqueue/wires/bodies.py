"""Bodies of other systems, which are text or bytes, as bodies of ours, which are JSON; and back, byte for byte.

A text that is a JSON object or array is stored as it is, so that a native worker gets an object. Any other text is
stored as a JSON string of it; bytes that are not UTF-8, or whose JSON string would be too long, as a JSON string of
their base64, with a header that says so.
"""

from __future__ import annotations

import base64
import binascii

import msgspec
import orjson

from buckets import Job, Tag
from jobqueue.errors import BadRequest, TooLarge
from jobqueue.schema import bodies

ENCODING = "content-encoding"
BASE64 = "base64"
_PAIRS = (b"{}", b"[]")
_ANY = msgspec.json.Decoder(msgspec.Raw)


def stored_text(text: str, max_body_bytes: int) -> bytes:
    """The body for a text. Raises TooLarge; UnicodeEncodeError for a lone surrogate."""
    raw = text.encode()
    if _is_json(raw, max_body_bytes):
        return raw
    body = orjson.dumps(text)
    bodies.check(body, max_body_bytes)
    return body


def stored_bytes(raw: bytes, max_body_bytes: int) -> tuple[bytes, dict[str, str]]:
    """The body for bytes, and the headers that it needs. Raises TooLarge."""
    try:
        return stored_text(raw.decode(), max_body_bytes), {}
    except (UnicodeDecodeError, TooLarge):
        body = b'"' + base64.b64encode(raw) + b'"'
        bodies.check(body, max_body_bytes)
        return body, {ENCODING: BASE64}


def given_bytes(job: Job) -> bytes:
    """What `stored_bytes` or `stored_text` was given; any other JSON as it travelled."""
    body = job.body
    if not body.startswith(b'"'):
        return body
    text: str = orjson.loads(body)
    if _is_base64(job):
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            pass  # a native job with the header, but another body
    return text.encode()


def given_text(job: Job) -> str:
    """As `given_bytes`, for a system of texts: bytes that are not UTF-8 as their base64."""
    try:
        return given_bytes(job).decode()
    except UnicodeDecodeError:
        text: str = orjson.loads(job.body)
        return text


def _is_base64(job: Job) -> bool:
    headers = job.optional.get(Tag.HEADERS)
    return headers is not None and orjson.loads(headers).get(ENCODING) == BASE64


def _is_json(raw: bytes, max_body_bytes: int) -> bool:
    """Whether the native protocol would take it, as an object or an array."""
    if raw[:1] + raw[-1:] not in _PAIRS:
        return False
    try:
        _ANY.decode(raw)
        bodies.check(raw, max_body_bytes)
    except (msgspec.DecodeError, RecursionError, BadRequest):
        return False
    return True
