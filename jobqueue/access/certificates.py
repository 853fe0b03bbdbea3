"""Certificates: until when one holds, and which names one has."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import Any

_FIRST = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_LONG = 0x80  # the bit of a length that is longer than a byte
_VERSION, _UTC_TIME = 0xA0, 0x17


def names_of(certificate: Any) -> tuple[str, ...]:
    """The URIs and DNS names of a client, from its certificate as `ssl` gives it; none without one."""
    names = certificate.get("subjectAltName", ()) if certificate else ()
    return tuple(name for kind, name in names if kind in ("URI", "DNS"))


def expiry(pem: str) -> float:
    """Until when the first certificate in a PEM text holds, in Unix time. Raises ValueError if there is none."""
    found = _FIRST.search(pem)
    if found is None:
        raise ValueError("there is no certificate")
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(found[0]))
    except IndexError:
        raise ValueError("the certificate is damaged") from None


def _not_after(der: bytes) -> float:
    """The standard library reads it only of the other side's certificate, so these are the first fields in DER."""
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
    """The tag and the content of the first element, and what is behind it."""
    kind, length, start = der[0], der[1], 2
    if length & _LONG:
        start += length & ~_LONG
        length = int.from_bytes(der[2:start], "big")
    return kind, der[start : start + length], der[start + length :]
