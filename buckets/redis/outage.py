"""An outage in the logs: one line when it begins, and one when it is over."""

from __future__ import annotations

import logging
import os
import re
from typing import Any

_NO_CONNECTION = re.compile(r"Error (-?\d+) connecting to (.+?)\. (.*?)\.?", re.DOTALL)
"""The error text of redis-py."""


class Outage:
    """Logs `lost` once, as a warning, and `found` once it is over."""

    def __init__(self, log: logging.Logger, lost: str, found: str) -> None:
        self._log = log
        self._lost = lost
        self._found = found
        self.is_on = False

    def begin(self, error: Exception, **fields: Any) -> None:
        """The outage has begun, or continues."""
        if not self.is_on:
            self.is_on = True
            self._log.warning(self._lost, extra={**fields, "error": reason(error)})

    def end(self, **fields: Any) -> None:
        """The outage is over, if there was one."""
        if self.is_on:
            self.is_on = False
            self._log.info(self._found, extra=fields)


def reason(error: BaseException) -> str:
    """An error in words. Some errors have no text, and asyncio's all say `Connect call failed`."""
    if refused := _NO_CONNECTION.fullmatch(str(error)):
        number, place, words = int(refused[1]), refused[2], refused[3]
        if words.startswith("Connect call failed"):
            words = os.strerror(number)
        return f"no connection to {place}: {words[:1].lower()}{words[1:]}"
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
