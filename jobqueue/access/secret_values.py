"""Secrets among the settings: read from files, and left out wherever settings are shown.

A secret may be given as it is or by the name of a file that holds it, so that it stands in no environment and on no
command line. The file's setting has the secret's name and `_file`. In the file of a profile or of sinks, `${NAME}`
stands for a secret that is in the environment.
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
    """A value of a file, with what `${NAME}` stands for in its texts: the variable NAME, or the line in the file that
    NAME_FILE names. Raises SettingsError, which names the place, for a variable that is empty.

    `place`: the file, and whose value this is, as a sentence begins. `environment`: None for that of this process.
    """
    if isinstance(value, dict):
        return {name: filled(each, f"{place}: {name}", environment) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, place, environment) for each in value]
    if not isinstance(value, str):
        return value
    is_url = "://" in value  # there a value must not end its part of the URL

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
    """Whether every user of this machine may read a file, as far as its own mode says."""
    try:
        return bool(Path(path).stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def refuse_both(given: Mapping[str, object], secret: str, place: str) -> None:
    """Raise SettingsError when one source gives a secret and also a file of it: one of them is forgotten."""
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
