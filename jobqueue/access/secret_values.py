"""Secrets among the settings: read from files, and left out wherever settings are shown.

A secret may be set directly or by the name of a file that holds it, so that it appears in no environment and on no
command line. The setting for the file is the secret's name followed by `_file`. In the file of a profile or of sinks,
`${NAME}` stands for a secret in the environment.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jobqueue.errors import SettingsError

_MOST_BYTES = 65_536
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def read_secret(path: str, setting: str) -> str:
    """The line that a file holds, without the newline at its end. Raises SettingsError, which names the setting and the
    file, and shows nothing of its contents."""
    place = f"the file {path} of {setting}"
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode().rstrip("\r\n")
    except OSError as error:
        raise SettingsError(f"{place} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, ValueError):  # a path with a null byte is a ValueError
        raise SettingsError(f"{place} is not text in UTF-8") from None
    if not text.strip():
        raise SettingsError(f"{place} is empty")
    if len(data) > _MOST_BYTES or not text.isprintable():
        raise SettingsError(f"{place} must hold one line, and nothing else")
    return text


def filled(value: Any, place: str, environment: Mapping[str, str] | None = None) -> Any:
    """A value from a file, with each `${NAME}` in its strings replaced by the variable NAME, or by the line in the file
    that NAME_FILE names. Raises SettingsError, which names the place, for a variable that is empty or missing.

    `place`: the file and the owner of the value, as the beginning of an error message. `environment`: None for the
    environment of this process.
    """
    if isinstance(value, dict):
        return {name: filled(each, f"{place}: {name}", environment) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, place, environment) for each in value]
    if not isinstance(value, str):
        return value
    is_url = "://" in value  # there, a value must not break out of its part of the URL

    def variable(match: re.Match[str]) -> str:
        text = _variable(match[1], place, os.environ if environment is None else environment)
        return quote(text, safe="") if is_url else text

    return _VARIABLE.sub(variable, value)


def _variable(name: str, place: str, environment: Mapping[str, str]) -> str:
    if file := environment.get(f"{name}_FILE"):
        return read_secret(file, f"{name}_FILE")
    if text := environment.get(name):
        return text
    raise SettingsError(f"{place}: ${{{name}}} is empty: set {name} or {name}_FILE in the environment")


def is_open_to_all(path: str) -> bool:
    """Whether the mode of a file lets every user of this machine read it."""
    try:
        return bool(Path(path).stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def refuse_both(given: Mapping[str, object], secret: str, place: str) -> None:
    """Raise SettingsError if one source sets both a secret and its file: one of them was probably forgotten there."""
    if given.get(secret) and given.get(f"{secret}_file"):
        raise SettingsError(f"{secret} and {secret}_file exclude each other: both are set in {place}")


def without_secret(url: str) -> str:
    """A Redis URL without user, password and parameters; `embedded` for an empty one."""
    if not url:
        return "embedded"
    scheme, separator, rest = url.partition("://")
    place, _, parameters = rest.partition("?")
    if not separator:
        return "…"
    if "@" in parameters and "@" not in place:  # the ? may be part of a password that was not escaped
        place = "…"
    return f"{scheme}{separator}{place.rpartition('@')[2]}"
