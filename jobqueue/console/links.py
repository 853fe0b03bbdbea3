"""Addresses of the console's own pages. Names of jobs and topics have `/`, `#`, `+` and the like in them, so they stand
in the query, percent-encoded."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

_OWN = re.compile(r"/[!-~]*")


class Links:
    """`base_path`: what stands before each path."""

    def __init__(self, base_path: str = "") -> None:
        self.base_path = base_path

    def to(self, page: str, **query: object) -> str:
        """The address of a page; what is None or empty is left out of its query."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        asked = "?" + urlencode(given, quote_via=quote, safe="", errors="replace") if given else ""
        return f"{self.base_path}/{page}{asked}"

    def own(self, address: str) -> str:
        """An address that a form has sent, if it is one of the console's; else its first page."""
        is_own = _OWN.fullmatch(address) and not address.startswith(("//", "/\\"))
        return address if is_own and address.startswith(f"{self.base_path}/") else self.to("")
