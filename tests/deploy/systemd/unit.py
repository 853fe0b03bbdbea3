"""A unit of systemd, read as far as the tests need it."""

from __future__ import annotations

from pathlib import Path

from tests.kit.service import ROOT

FOLDER = ROOT / "deploy" / "systemd"


class Unit:
    """The section `Service` of a unit file; `instance`: behind the `@` of its name."""

    def __init__(self, file: Path, instance: str = "") -> None:
        self.name = file.name.replace("@.", f"@{instance}.")
        self.credentials = f"/run/credentials/{self.name}"
        """The folder in which the service finds its credentials."""
        self._values: dict[str, list[str]] = {}
        service = file.read_text().partition("\n[Service]\n")[2].partition("\n[")[0]
        for line in service.splitlines():
            if line and line[0] not in "#;":
                name, _, value = line.partition("=")
                value = value.replace("%d", self.credentials).replace("%i", instance)
                self._values.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        """The values of a setting that may be given several times."""
        return self._values.get(name, [])

    def one(self, name: str) -> str:
        """The value of a setting that is given once."""
        (value,) = self._values[name]
        return value

    def has(self, name: str) -> bool:
        """Whether a setting that is yes or no is yes."""
        return self.all(name) == ["yes"]
