"""The Dockerfile, as far as its tests and those of the compose files read it."""

from __future__ import annotations

import json
import re

from tests.kit.service import ROOT

DOCKER = ROOT / "deploy" / "docker"
FILE = DOCKER / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Each instruction and what follows it, in order, with continued lines joined."""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in whole.splitlines() if line)]


def last(name: str) -> str:
    """What follows the last instruction of this name."""
    return [rest for each, rest in instructions() if each == name][-1]


def command() -> list[str]:
    """What a container runs unless told otherwise."""
    return [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]


def healthcheck() -> list[str]:
    """The command that tells whether a container is healthy."""
    healthy: list[str] = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    return healthy


def environment() -> dict[str, str]:
    """The variables that the image sets."""
    return dict(rest.split("=", 1) for name, rest in instructions() if name == "ENV")
