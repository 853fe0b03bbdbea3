"""The parameters of an HTTP request: those of its query, and those of a form in its body.

Names and values are percent-encoded UTF-8. Each is decoded when it is asked for, so that a damaged one that nobody asks
for does no harm.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from jobqueue.errors import BadField

FORM = "application/x-www-form-urlencoded"
_MOST = 1000
"""Those of a query or a form that are read."""
_BLANKS = " \t\r\n\f\v"
_INTEGER = re.compile(r"[+-]?0*[0-9]{1,19}")
_INT64 = 2**63
_TRUTHS = dict.fromkeys(("true", "on", "yes", "1"), True) | dict.fromkeys(("false", "off", "no", "0"), False)


def is_form(content_type: str) -> bool:
    """Whether a body with this type, or without a type, is a form."""
    return content_type.partition(";")[0].strip().lower() in ("", FORM)


class Parameters:
    """By their names. Of several with one name the first counts."""

    def __init__(self, *encoded: str | bytes) -> None:
        """From queries and forms, the first of them first."""
        self._encoded: dict[bytes, bytes] = {}
        for each in encoded:
            raw = each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each
            for pair in raw.split(b"&", _MOST)[:_MOST]:
                name, _, value = pair.partition(b"=")
                self._encoded.setdefault(_decoded(name), value)

    def text(self, name: str) -> str | None:
        """A text; None where it is absent. Raises BadField."""
        encoded = self._encoded.get(name.encode())
        if encoded is None:
            return None
        try:
            return _decoded(encoded).decode()
        except UnicodeDecodeError:
            raise BadField(f"{name} is not UTF-8", field=name) from None

    def integer(self, name: str, least: int = -_INT64, most: int = _INT64 - 1) -> int | None:
        """Decimal digits, with or without a sign, and blanks around them; None where it is absent or empty. Raises
        BadField."""
        text = self._trimmed(name)
        if not text:
            return None
        number = int(text) if _INTEGER.fullmatch(text) else None
        if number is None or not least <= number <= most:
            raise BadField(f"{name} must be an integer from {least} to {most}", field=name)
        return number

    def truth(self, name: str) -> bool | None:
        """true, on, yes or 1; false, off, no or 0, in any case; None where it is absent or empty. Raises BadField."""
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
