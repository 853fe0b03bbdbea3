"""Which requests are answered at all, by their heads: see `jobqueue.access.browsers` for the same at the service.

A name that a foreign page lets lead to this machine (DNS rebinding) is still in `Host`. What a page of another site
makes a browser send says so in `Sec-Fetch-Site`, or in `Origin` where the browser sends only that.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from multidict import MultiMapping

from jobqueue.console.options import is_loopback


def name_of(host: str) -> str:
    """The name or the address in a `Host`, without its port; empty if it is neither."""
    if host.startswith("["):
        address, _, rest = host[1:].partition("]")
        return "" if rest.strip(":0123456789") else address.lower()
    return host.partition(":")[0].lower().removesuffix(".")


class Guard:
    """`names`: those that the console has."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def knows(self, headers: MultiMapping[str]) -> bool:
        """Whether the request names the console as it is called."""
        given = headers.getall("Host", [])
        return len(given) == 1 and name_of(given[0]) in self._names

    def is_from_here(self, headers: MultiMapping[str]) -> bool:
        """Whether a page of the console sends this POST. A request that says nothing of where it comes from is sent by
        no browser, and by no page of ours."""
        sites, origins = headers.getall("Sec-Fetch-Site", []), headers.getall("Origin", [])
        if sites:
            return sites == ["same-origin"]
        return len(origins) == 1 and urlsplit(origins[0]).netloc.lower() == headers.get("Host", "").lower()


def is_for_loopback(headers: MultiMapping[str]) -> bool:
    """Whether the browser is on this machine, as it calls the console by a name of loopback."""
    return is_loopback(name_of(headers.get("Host", "")))
