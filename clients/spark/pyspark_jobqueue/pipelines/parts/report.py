"""The report at the end of a run: a table for people, JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def instant(seconds: float) -> str:
    """Unix seconds as a time in UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Report:
    """Figures in the order in which they were noted. `well`: whether the run found nothing wrong."""

    def __init__(self, pipeline: str) -> None:
        self._began = time.monotonic()
        self.well = True
        self.figures: dict[str, Any] = {"pipeline": pipeline}
        self._only_json: set[str] = set()

    def note(self, **figures: Any) -> None:
        """Add figures. A list of dicts becomes a table of its own."""
        self.figures.update(figures)

    def keep(self, **figures: Any) -> None:
        """Add figures for the JSON only: they are too long for a table."""
        self.figures.update(figures)
        self._only_json.update(figures)

    def publish(self, file: str | None = None, *, as_json: bool = False) -> None:
        """Print the report, as a table on a terminal and as one line of JSON otherwise. Write the JSON to `file`
        too."""
        self.note(seconds=round(time.monotonic() - self._began, 3))
        line = json.dumps(self.figures, default=str)
        print(line if as_json or not sys.stdout.isatty() else self.table(), flush=True)
        if file:
            Path(file).write_text(line + "\n")

    def table(self) -> str:
        """The figures, one per line, followed by the tables."""
        shown = {name: value for name, value in self.figures.items() if name not in self._only_json}
        plain = {name: value for name, value in shown.items() if not _is_table(value)}
        width = max(map(len, plain))
        lines = [f"{name.replace('_', ' '):{width}}  {_shown(value)}" for name, value in plain.items()]
        for name, rows in shown.items():
            if _is_table(rows):
                lines += ["", name.replace("_", " "), *_columns(rows)]
        return "\n".join(lines)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    cells = [list(rows[0]), *([_shown(value) for value in row.values()] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    return ["  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]


def _shown(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    # Ids and reasons come from users: keep control characters off the terminal.
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)
