"""The options of a write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pyspark_jobqueue.connector.columns import FIELDS, option_of
from pyspark_jobqueue.connector.options import Given, Target
from pyspark_jobqueue.errors import BadOption

MOST_HEADERS, LONGEST_HEADER = 16, 128
"""The protocol's limits for the headers of a job."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MOST_A_SECOND = 10_000_000
_TOPIC = re.compile(r"[A-Za-z0-9._\-:/@#+=%]{1,255}")


@dataclass(frozen=True)
class WriteOptions:
    """Everything a task needs to send rows. Pickled to the tasks."""

    target: Target
    topic: str | None = None
    batch_size: int = 1000
    in_flight: int = 4
    rows_per_second: int | None = None
    if_exists: str = "keep"
    json_text: bool = False
    on_error: str = "fail"
    """`fail`, `skip`, or the folder for refused rows."""
    dry_run: bool = False
    report_path: str | None = None
    trace: Mapping[str, str] = field(default_factory=dict)
    """The headers `traceparent` and `tracestate` of jobs whose rows have neither; empty without a trace."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> tuple[Self, dict[str, str]]:
        """Returns the options, and the column names that options set, by field. Raises BadOption."""
        given = Given(options)
        made = cls(
            Target.of(given),
            _topic(given.text("topic")),
            given.integer("batchSize", 1000, 1, 1000),
            given.integer("inFlight", 4, 1, 64),
            given.integer("rowsPerSecondPerTask", 0, 1, _MOST_A_SECOND) or None,
            given.choice("ifExists", "keep", "keep", "renew", "replace", "reject", "later", "sooner"),
            given.choice("bodyFormat", "string", "string", "json") == "json",
            _on_error(given.text("onError", "fail") or "fail"),
            given.flag("dryRun"),
            given.text("reportPath"),
            _trace(given.text("traceparent"), given.text("tracestate")),
        )
        what = given.text("what", "jobs") or "jobs"
        if what.lower() != "jobs":
            raise BadOption(f"what={what} can only be read, not written to")
        given.pass_over("state")  # an SQL table may have it for reads
        named = {each: name for each in FIELDS if (name := given.text(option_of(each)))}
        given.done()
        return made, named


def _topic(text: str | None) -> str | None:
    if text is not None and not _TOPIC.fullmatch(text):
        raise BadOption(
            f"option topic must be one topic: up to 255 characters from A-Z a-z 0-9 . _ - : / @ # + = %XX, not {text!r}"
        )
    return text


def is_traceparent(text: str) -> bool:
    """Whether a text is a `traceparent` of W3C Trace Context."""
    return _TRACEPARENT.fullmatch(text) is not None


def _trace(parent: str | None, state: str | None) -> dict[str, str]:
    if parent is None:
        return {}
    if not is_traceparent(parent):
        raise BadOption(f"option traceparent must be like 00-<32 hex digits>-<16 hex digits>-01, not {parent!r}")
    return {"traceparent": parent, **({"tracestate": state} if state and len(state) <= LONGEST_HEADER else {})}


def _on_error(text: str) -> str:
    if text.lower() in ("fail", "skip"):
        return text.lower()
    if "/" not in text:  # otherwise a typo would become a folder
        raise BadOption(f"option onError must be fail, skip, or a folder whose path contains a /, not {text!r}")
    return text
