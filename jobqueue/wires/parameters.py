"""What requests of other systems carry: parameters, names and bodies.

The parameters of an HTTP request are those of its query, and those of a form in its body. Names and values are
percent-encoded UTF-8. A value is decoded when it is asked for, so that a damaged value that nobody asks for does no
harm.

Names of other systems become names of ours: any text, escaped, after the prefix of the dialect.

Bodies of other systems are text or bytes, and come back byte for byte; ours are JSON. A text that is a JSON object or
array is stored as it is, so that a native worker gets an object. Any other text is stored as a JSON string. Bytes that
are not UTF-8, or whose JSON string would be too long, are stored as a JSON string of their base64, with a header that
says so.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

import msgspec
import orjson

from buckets import Job, Tag
from jobqueue.errors import BadField, BadRequest, TooLarge
from jobqueue.schema import checks
from jobqueue.schema.fields import LONGEST_NAME, NAME_CHARACTERS

FORM = "application/x-www-form-urlencoded"
_MOST = 1000
"""The most parameters of a query or a form that are read."""
_BLANKS = " \t\r\n\f\v"
_INTEGER = re.compile(r"[+-]?0*[0-9]{1,19}")
_INT64 = 2**63
_TRUTHS = dict.fromkeys(("true", "on", "yes", "1"), True) | dict.fromkeys(("false", "off", "no", "0"), False)


def is_form(content_type: str) -> bool:
    """Whether a body with this type, or without a type, is a form."""
    return content_type.partition(";")[0].strip().lower() in ("", FORM)


class Parameters:
    """The parameters of a request, by name. If several have the same name, the first one counts."""

    def __init__(self, *encoded: str | bytes) -> None:
        """`encoded`: queries and forms; an earlier one has precedence."""
        self._encoded: dict[bytes, bytes] = {}
        for each in encoded:
            raw = each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each
            for pair in raw.split(b"&", _MOST)[:_MOST]:
                name, _, value = pair.partition(b"=")
                self._encoded.setdefault(_decoded(name), value)

    def text(self, name: str) -> str | None:
        """A text, or None if it is absent. Raises BadField."""
        encoded = self._encoded.get(name.encode())
        if encoded is None:
            return None
        try:
            return _decoded(encoded).decode()
        except UnicodeDecodeError:
            raise BadField(f"{name} is not UTF-8", field=name) from None

    def integer(self, name: str, least: int = -_INT64, most: int = _INT64 - 1) -> int | None:
        """An integer from decimal digits, with or without a sign and blanks around them; None if it is absent or empty.
        Raises BadField."""
        text = self._trimmed(name)
        if not text:
            return None
        number = int(text) if _INTEGER.fullmatch(text) else None
        if number is None or not least <= number <= most:
            raise BadField(f"{name} must be an integer from {least} to {most}", field=name)
        return number

    def truth(self, name: str) -> bool | None:
        """True for true, on, yes or 1, and False for false, off, no or 0, in upper or lower case; None if it is absent
        or empty. Raises BadField."""
        text = self._trimmed(name)
        if not text:
            return None
        truth = _TRUTHS.get(text.lower())
        if truth is None:
            raise BadField(f"{name} must be true or false", field=name)
        return truth

    def _trimmed(self, name: str) -> str:
        return (self.text(name) or "").strip(_BLANKS)


def _decoded(encoded: bytes) -> bytes:
    return unquote_to_bytes(encoded.replace(b"+", b" "))


_OTHER = re.compile(rb"[^" + re.escape(NAME_CHARACTERS.encode()) + rb"]")
_HIDES_TILDE = "/#+@=:%"
_TILDE = re.compile("~([0-9A-F]{2})")


def escaped(text: str) -> str:
    """The text with `%`, and each byte of its UTF-8 that a name may not have, written as `%XX`. Each text has exactly
    one spelling. Raises UnicodeEncodeError for a lone surrogate."""
    return _OTHER.sub(lambda found: b"%%%02X" % found[0][0], text.encode()).decode()


def plain(name: str) -> str:
    """The text from which `escaped` made a name; bytes that are not UTF-8 become U+FFFD."""
    return unquote_to_bytes(name).decode("utf-8", "replace") if "%" in name else name


def fits(name: str) -> bool:
    """Whether an escaped name with its prefix has an allowed length."""
    return 0 < len(name) <= LONGEST_NAME


def without_colons(topic: str) -> str:
    """A topic as the first part of an id, before a colon: its own colons are escaped."""
    return topic.replace(":", "%3A")


def tilde(name: str) -> str:
    """An id for systems that accept only letters, digits, `-` and `_` in ids: each of `/ # + @ = : %` becomes `~XX`."""
    return "".join(f"~{ord(each):02X}" if each in _HIDES_TILDE else each for each in name)


def without_tilde(name: str) -> str:
    """The id from which `tilde` made a name."""
    return _TILDE.sub(lambda found: chr(int(found[1], 16)), name)


ENCODING = "content-encoding"
BASE64 = "base64"
_PAIRS = (b"{}", b"[]")
_ANY = msgspec.json.Decoder(msgspec.Raw)


def stored_text(text: str, max_body_bytes: int) -> bytes:
    """The body for a text. Raises TooLarge; UnicodeEncodeError for a lone surrogate."""
    return _stored(text.encode(), text, max_body_bytes)


def _stored(raw: bytes, text: str, max_body_bytes: int) -> bytes:
    if raw[:1] + raw[-1:] in _PAIRS and _is_json(raw, max_body_bytes):
        return raw
    body = orjson.dumps(text)
    if len(body) > max_body_bytes:
        raise checks.too_large(body, max_body_bytes)
    return body


def stored_bytes(raw: bytes, max_body_bytes: int) -> tuple[bytes, dict[str, str]]:
    """The body for bytes, and the headers that it needs. Raises TooLarge."""
    try:
        return _stored(raw, raw.decode(), max_body_bytes), {}
    except (UnicodeDecodeError, TooLarge):
        body = b'"' + base64.b64encode(raw) + b'"'
        if len(body) > max_body_bytes:
            raise checks.too_large(body, max_body_bytes) from None
        return body, {ENCODING: BASE64}


def given_bytes(job: Job) -> bytes:
    """The bytes that `stored_bytes` or `stored_text` stored as this body; any other JSON as it was sent."""
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
    """Like `given_bytes`, for a system whose bodies are texts: bytes that are not UTF-8 become their base64."""
    try:
        return given_bytes(job).decode()
    except UnicodeDecodeError:
        text: str = orjson.loads(job.body)
        return text


def _is_base64(job: Job) -> bool:
    headers = job.kind.optional.get(Tag.HEADERS)
    return headers is not None and orjson.loads(headers).get(ENCODING) == BASE64


def _is_json(raw: bytes, max_body_bytes: int) -> bool:
    """Whether the native protocol would accept the bytes, which begin and end as an object or an array."""
    try:
        _ANY.decode(raw)
        checks.check_body(raw, max_body_bytes)
    except (msgspec.DecodeError, RecursionError, BadRequest):
        return False
    return True
