"""The token that tasks show the service. No error message and no `repr` has it."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark_jobqueue.errors import BadOption

VARIABLE = "JOBQUEUE_TOKEN"


def chosen(token: str | None, file: str | None) -> str | None:
    """The token of the option `token`, of the file that `tokenFile` names, or of the driver's environment. Raises
    BadOption."""
    if token is not None and file is not None:
        raise BadOption("options token and tokenFile exclude each other")
    if file is not None:
        return read(file)
    if token is not None:
        return _checked(token, "option token")
    given = os.environ.get(VARIABLE)
    return _checked(given, VARIABLE) if given else None


def read(file: str) -> str:
    """The token in a file. Raises BadOption."""
    return _checked(secret_in(file, "tokenFile"), "the token in the file of option tokenFile")


def secret_in(file: str, option: str) -> str:
    """What a file holds that an option names. Raises BadOption, which does not quote it."""
    try:
        return Path(file).read_text("utf-8").strip()
    except OSError as error:
        raise BadOption(f"the file of option {option} cannot be read: {error.strerror}: {file}") from None
    except UnicodeDecodeError:  # it quotes the file
        raise BadOption(f"the file of option {option} is not text: {file}") from None


def _checked(token: str, where: str) -> str:
    if not token or not (token.isascii() and token.isprintable()):
        raise BadOption(f"{where} must consist of printable ASCII characters")
    return token
