"""Templates, with everything that keeps foreign text harmless set in this one place."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jinja2

from jobqueue.cli import humanize
from jobqueue.console import formatting
from jobqueue.console.assets import Assets
from jobqueue.console.charts import axes
from jobqueue.console.links import Links
from jobqueue.console.options import Options

_FOLDER = Path(__file__).with_name("templates")


class Templates:
    """The templates of the pages."""

    def __init__(self, options: Options, links: Links, assets: Assets, *, escape: bool = True) -> None:
        """`escape`: false only in the test that shows what stops a script if escaping ever fails."""
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
        # Macros know nothing of a request.
        self._environment.globals["ui"] = self._environment.get_template("parts/macros.html").module
        self._environment.globals["draw"] = self._environment.get_template("parts/charts.html").module

    def render(self, name: str, layout: str, **content: Any) -> str:
        """A page in one of two layouts: `page` is all of it, `live` only what changes."""
        return self._environment.get_template(f"{name}.html").render(content, layout=f"parts/{layout}.html")
