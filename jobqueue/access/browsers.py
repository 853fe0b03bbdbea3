"""Browsers: recognizes requests from web pages that may not make them.

A page of any origin can make its visitor's browser send a request to a service on the visitor's machine or network. The
page cannot read the answer, but the command would be carried out. Browsers say in `Origin` and `Sec-Fetch-Site` where a
request comes from, and a page can forge neither; the clients of the service send neither. If a page makes its own name
resolve to the address of the service (DNS rebinding), the browser considers both the same origin, and omits `Origin`
from a GET. The name is still in `Host`, and a service on loopback knows the names that it can have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from multidict import MultiMapping

from jobqueue.errors import Forbidden, Misdirected

_OWN_SITES = ("same-origin", "none")  # for a page of the service itself, and for an address that a person typed
_PREFLIGHT = "Access-Control-Request-Method"


class Browsers:
    """Decides by its headers whether a request is allowed. `origins`: the origins whose pages may make requests;
    `hosts`: names of the service in `Host`, besides localhost."""

    def __init__(self, origins: Iterable[str] = (), hosts: Iterable[str] = ()) -> None:
        self._origins = frozenset(origins)
        self._hosts = frozenset(host.lower() for host in hosts)

    def judge(self, method: str, headers: MultiMapping[str], *, on_loopback: bool) -> str:
        """Returns the origin of the page that makes the request, or an empty string if no page does. Raises Forbidden
        for a page that may not make it, and Misdirected if `Host` is not a name of the service. `on_loopback`: True if
        only this machine can reach the service."""
        origin = self._origin(headers)
        if method in ("GET", "HEAD") and (on_loopback or self._hosts):
            self._check_host(headers.getall("Host", []))
        return origin

    def _origin(self, headers: MultiMapping[str]) -> str:
        origins, sites = headers.getall("Origin", []), headers.getall("Sec-Fetch-Site", [])
        if not origins and len(sites) < 2 and all(site in _OWN_SITES for site in sites):
            return ""
        if len(origins) != 1 or len(sites) > 1 or origins[0] not in self._origins or _is_web_socket(headers):
            raise Forbidden(_REFUSED)
        return origins[0]

    def _check_host(self, given: list[str]) -> None:
        if given and (len(given) > 1 or not self._has(_name(given[0]))):
            raise Misdirected()

    def _has(self, name: str) -> bool:
        return name == "localhost" or name.endswith(".localhost") or name in self._hosts or _is_address(name)


_REFUSED = "a web page may not make this request; the setting allowed_origins names the origins whose pages may"


def _is_web_socket(headers: MultiMapping[str]) -> bool:
    upgrades = ",".join(headers.getall("Upgrade", []))
    return "Sec-WebSocket-Key" in headers or "websocket" in upgrades.lower()


def _name(host: str) -> str:
    """The name or the address in a `Host`, in lower case and without the port; empty if it is neither."""
    if host.startswith("["):
        address, _, rest = host[1:].partition("]")
        return "" if rest.strip(":0123456789") else address.lower()
    return host.partition(":")[0].lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a request is a CORS preflight: the browser only asks if a page may make a request."""
    return method == "OPTIONS" and _PREFLIGHT in headers


def read_by(origin: str) -> dict[str, str]:
    """The header fields that make a browser let a page of this origin read an answer."""
    exposed = "Retry-After, WWW-Authenticate, X-Request-Id"
    return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": exposed, "Vary": "Origin"}


def made_by(origin: str) -> dict[str, str]:
    """The header fields that make a browser let a page of this origin make any request."""
    return {
        **read_by(origin),
        "Access-Control-Allow-Methods": "*",
        "Access-Control-Allow-Headers": "*, Authorization",  # the star does not include it
        "Access-Control-Max-Age": "600",
    }
