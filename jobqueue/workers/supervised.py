"""What a process does that has a supervisor: it obeys that alone, ends with it, and answers its messages."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def obey(supervisor: int) -> None:
    """Take signals from the supervisor alone, which passes on what others mean, and have the kernel kill this process
    when the thread that started it ends: the supervisor's main thread."""
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(ignored, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:  # it ended before the kernel was asked
        sys.exit(1)


def report(refusal: str) -> None:
    """Answer a message: with nothing, or why this process cannot start."""
    print(json.dumps(refusal), flush=True)
