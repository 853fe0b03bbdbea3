"""The token that the command line shows a service: from JOBQUEUE_TOKEN, or the file that JOBQUEUE_TOKEN_FILE names.

There is no flag for it, as everybody on a machine sees the command lines of all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from jobqueue.access.secret_values import read_secret
from jobqueue.access.token import PREFIX, Token
from jobqueue.errors import SettingsError

TOKEN, TOKEN_FILE = "JOBQUEUE_TOKEN", "JOBQUEUE_TOKEN_FILE"


def token_of(environment: Mapping[str, str] | None = None) -> str:
    """The token, or nothing. Raises SettingsError for a file that cannot be read, and a token with a typing error."""
    environment = os.environ if environment is None else environment
    file = environment.get(TOKEN_FILE, "")
    text = environment.get(TOKEN, "") or (read_secret(file, TOKEN_FILE) if file else "")
    if text.startswith(PREFIX) and Token.read(text) is None:
        raise SettingsError(f"the token in {TOKEN if environment.get(TOKEN) else TOKEN_FILE} is mistyped or incomplete")
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise SettingsError(f"the token in {TOKEN if environment.get(TOKEN) else TOKEN_FILE} has odd characters")
    return text
