"""The files that pages load: style, scripts, icon. They stand below a hash of all of them, so that a browser may keep
them for good and still gets the new ones of another version."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from jobqueue.console.links import Links

_FOLDER = Path(__file__).with_name("static")
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file and its type."""

    content: bytes
    kind: str


class Assets:
    """All files, read once."""

    def __init__(self, links: Links) -> None:
        self._links = links
        paths = sorted(path for path in _FOLDER.rglob("*") if path.suffix in _KINDS)
        self.files = {
            path.relative_to(_FOLDER).as_posix(): Asset(path.read_bytes(), _KINDS[path.suffix]) for path in paths
        }
        whole = hashlib.sha256()
        for name, file in self.files.items():
            whole.update(f"{name}\0{len(file.content)}\0".encode() + file.content)
        self.hash = whole.hexdigest()[:20]

    def address(self, name: str) -> str:
        """Where a browser finds a file."""
        assert name in self.files
        return self._links.to(f"static/{self.hash}/{name}")
