"""The answers of `jobqueue audit`, as a table, JSON or CSV."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Mapping
from typing import Any

import click

from jobqueue import settings
from jobqueue.cli import humanize
from jobqueue.cli.journal.arguments import CannotBegin, named
from jobqueue.cli.output import Output, remark
from jobqueue.errors import SettingsError
from jobqueue.journal.audit import Asked, Found, Inexact, ask
from jobqueue.journal.explaining.words import moment
from jobqueue.journal.store import Away
from jobqueue.journal.url import Refused


def audit(name: str, since: float, until: float, config: str | None, given: Mapping[str, Any]) -> int:
    """Ask, and print the answer; returns the exit code. Raises CannotBegin, UsageError."""
    asked = Asked(
        round(since * 1e6),
        round(until * 1e6),
        given.get("topic"),
        given.get("by", "topic"),
        float(given.get("over") or 0),
    )
    try:
        found = asyncio.run(ask(_journal(config, given), given["source"], name, asked))
    except Inexact as error:
        raise click.UsageError(str(error)) from None
    except (Refused, Away) as error:
        raise CannotBegin(str(error)) from None
    out = Output(given["as_json"])
    if given["as_csv"]:
        click.echo(_csv(found), nl=False)
    elif out.as_json:
        click.echo(json.dumps(_as_json(name, asked, found), ensure_ascii=False))
    else:
        _show(out, name, asked, found)
        return 0
    for note in found.notes:
        remark(f"note: {note}")
    return 0


def _journal(config: str | None, given: Mapping[str, Any]) -> str:
    """The URL of the journal. Raises CannotBegin, UsageError."""
    url = named(given["url_from"], given["url_file"])
    if url is None:
        try:
            url = settings.load({}, config).journal
        except SettingsError as error:
            raise CannotBegin(str(error)) from None
    if not url:
        raise CannotBegin("the journal is not named: give --from, --from-file, JOBQUEUE_JOURNAL or the setting journal")
    return url


def _as_json(name: str, asked: Asked, found: Found) -> dict[str, Any]:
    return {
        "question": name,
        "since": asked.since / 1e6,
        "until": asked.until / 1e6,
        "rows": [dict(zip(found.columns, row, strict=True)) for row in found.rows],
        "notes": found.notes,
    }


def _csv(found: Found) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([found.columns, *found.rows])
    return text.getvalue()


def _show(out: Output, name: str, asked: Asked, found: Found) -> None:
    from rich import box  # noqa: PLC0415 - only a terminal needs it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    out.say(f"{name} from {moment(asked.since)} to {moment(asked.until)} UTC")
    if found.rows:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column, value in zip(found.columns, found.rows[0], strict=True):
            is_number = isinstance(value, int | float)
            table.add_column(column.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
        for row in found.rows:
            table.add_row(*(Text(_cell(value)) for value in row))
        out.console.print(table)
    else:
        out.say("nothing")
    for note in found.notes:
        out.say(f"note: {note}")


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return humanize.number(value)
    return f"{value:g}" if isinstance(value, float) else humanize.clean(str(value))
