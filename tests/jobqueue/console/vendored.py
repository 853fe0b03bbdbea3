"""The scripts that the console's pages load, as their authors published them: `make vendor` fetches them with npm, and
`vendored.toml` beside them says which version of what each is, with its SHA-512."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from tests.kit.service import ROOT

FOLDER = ROOT / "jobqueue" / "console" / "static" / "vendor"
LIST = FOLDER / "vendored.toml"


def packages() -> list[dict[str, Any]]:
    """What the list says: packages, each with its files."""
    listed: list[dict[str, Any]] = tomllib.loads(LIST.read_text())["package"]
    return listed


def digest(content: bytes) -> str:
    """A SHA-512, as the list has it."""
    return hashlib.sha512(content).hexdigest()


def fetch(version: str | None) -> None:
    """Put the files there again, and write the list. `version`: of the first package, another than the list has."""
    texts = []
    for number, package in enumerate(packages()):
        wanted = version if version and number == 0 else package["version"]
        with tempfile.TemporaryDirectory() as folder:
            npm = shutil.which("npm") or "npm"
            subprocess.run([npm, "pack", "--silent", f"{package['name']}@{wanted}"], cwd=folder, check=True)
            (packed,) = Path(folder).glob("*.tgz")
            texts.append(_unpacked(packed, package, wanted))
    head = LIST.read_text().partition("[[package]]")[0]
    LIST.write_text(head + "\n".join(texts))


def _unpacked(packed: Path, package: dict[str, Any], version: str) -> str:
    lines = [
        "[[package]]",
        f'name = "{package["name"]}"',
        f'version = "{version}"',
        f'license = "{package["license"]}"',
    ]
    with tarfile.open(packed) as archive:
        for file in package["files"]:
            member = archive.extractfile(f"package/{file['published']}")
            assert member
            content = member.read()
            (FOLDER / file["file"]).write_bytes(content)
            lines += ["", "[[package.files]]", f'file = "{file["file"]}"', f'published = "{file["published"]}"']
            lines.append(f'sha512 = "{digest(content)}"')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    fetch(sys.argv[1] if len(sys.argv) > 1 else None)
