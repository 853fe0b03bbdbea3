"""Secrets among the settings: read from files, and left out wherever settings are shown.

A secret may be given as it is or by the name of a file that holds it, so that it stands in no environment and on no
command line. The file's setting has the secret's name and `_file`.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from jobqueue.errors import SettingsError

_MOST_BYTES = 65_536


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
