"""The codes of answers, by what they mean to a participant and to the checks."""

from __future__ import annotations

FAULT = ("UNAVAILABLE", "SHUTTING_DOWN", "NOT_SENT", "NOT_ANSWERED")
"""Explained by any fault. The last two stand for an answer that did not arrive."""
FULL = ("NO_ROOM", "TOPIC_FULL")
"""Explained by what the service holds at the moment."""
TEMPORARY = (*FAULT, *FULL)
"""The same command may be sent again."""
UNKNOWN = ("UNAVAILABLE", "INTERNAL", "NOT_ANSWERED")
"""The command may or may not have been executed."""
