"""Templates, with everything that keeps foreign text harmless set in this one place; the URLs and files of pages.

Names of jobs and topics contain `/`, `#`, `+` and the like, so they are in the query of a URL, percent-encoded. The
URLs of the style sheet, the scripts and the icon contain a hash of all these files, so that a browser may cache them
for good and still gets the new files of another version.
"""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import jinja2

from jobqueue.cli import humanize
from jobqueue.console import formatting
from jobqueue.console.charts import axes
from jobqueue.console.options import Options

_OWN = re.compile(r"/[!-~]*")


class Links:
    """`base_path`: the prefix of each path."""

    def __init__(self, base_path: str = "") -> None:
        self.base_path = base_path

    def to(self, page: str, **query: object) -> str:
        """The URL of a page; parameters that are None or empty are left out of its query."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        asked = "?" + urlencode(given, quote_via=quote, safe="", errors="replace") if given else ""
        return f"{self.base_path}/{page}{asked}"

    def own(self, address: str) -> str:
        """The URL that a form has sent if it is one of the console's, otherwise the URL of the first page."""
        is_own = _OWN.fullmatch(address) and not address.startswith(("//", "/\\"))
        return address if is_own and address.startswith(f"{self.base_path}/") else self.to("")


_STATIC = Path(__file__).with_name("static")
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file and its type."""

    content: bytes
    kind: str


class Assets:
    """All static files, read once."""

    def __init__(self, links: Links) -> None:
        self._links = links
        paths = sorted(path for path in _STATIC.rglob("*") if path.suffix in _KINDS)
        self.files = {
            path.relative_to(_STATIC).as_posix(): Asset(path.read_bytes(), _KINDS[path.suffix]) for path in paths
        }
        whole = hashlib.sha256()
        for name, file in self.files.items():
            whole.update(f"{name}\0{len(file.content)}\0".encode() + file.content)
        self.hash = whole.hexdigest()[:20]

    def address(self, name: str) -> str:
        """The URL of a static file."""
        assert name in self.files
        return self._links.to(f"static/{self.hash}/{name}")


_FOLDER = Path(__file__).with_name("templates")


class Templates:
    """The templates of the pages."""

    def __init__(self, options: Options, links: Links, assets: Assets, *, escape: bool = True) -> None:
        """`escape`: False only in the test that shows what stops a script if escaping ever fails."""
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER),
            autoescape=jinja2.select_autoescape(default=True),
            undefined=jinja2.StrictUndefined,
            finalize=formatting.shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        if not escape:
            self._environment.autoescape = False
        self._environment.globals.update(
            options=options,
            to=links.to,
            asset=assets.address,
            now=time.time,
            size=formatting.size,
            rfc3339=formatting.rfc3339,
            utc=formatting.utc,
            zip=zip,
            number=humanize.number,
            jobs=humanize.jobs,
            span=humanize.span,
            ahead=humanize.ahead,
            WIDTH=axes.WIDTH,
            HEIGHT=axes.HEIGHT,
            LEFT=axes.LEFT,
            late=formatting.late,
            rate=formatting.rate,
            minute=formatting.minute,
        )
        # Macros have no access to a request.
        self._environment.globals["ui"] = self._environment.get_template("parts/macros.html").module
        self._environment.globals["draw"] = self._environment.get_template("parts/charts.html").module

    def render(self, name: str, layout: str, **content: Any) -> str:
        """A page in one of two layouts: `page` for the whole page, `live` for only the parts that change."""
        return self._environment.get_template(f"{name}.html").render(content, layout=f"parts/{layout}.html")
