"""What a worker tells: to its log, to the hook, and in its counts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

Hook = Callable[[str, dict[str, Any]], None]

log = logging.getLogger("jobqueue_client")

_WARNINGS = {"job.failed", "job.buried", "job.lost", "service.lost"}
_INFOS = {"worker.started", "worker.stopping", "worker.stopped", "worker.heartbeat", "service.back", "job.returned"}
_COUNTED = ("finished", "failed", "retried", "buried", "lost")


class Events:
    """The events of one worker. Their names and fields stand in ../../README.md."""

    def __init__(self, hook: Hook | None) -> None:
        self._hook = hook
        self._counts: Counter[str] = Counter()

    def tell(self, name: str, error: BaseException | None = None, **fields: Any) -> None:
        """Something happened; `error`: with its trace, for the log."""
        self._counts[name] += 1
        level = logging.WARNING if name in _WARNINGS else logging.INFO if name in _INFOS else logging.DEBUG
        if log.isEnabledFor(level):
            words = " ".join(f"{key}={value!r}" for key, value in fields.items())
            log.log(level, "%s %s", name, words, exc_info=error)
        if self._hook is None:
            return
        try:
            self._hook(name, fields)
        except Exception:
            log.exception("the hook failed at %s", name)

    def tell_counts(self, worker: str, running: int) -> None:
        """The heartbeat: how many jobs ended how, since the start."""
        counts: dict[str, Any] = {name: self._counts[f"job.{name}"] for name in _COUNTED}
        self.tell("worker.heartbeat", worker=worker, running=running, **counts)
