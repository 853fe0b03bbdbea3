"""`jobqueue journal export`: writes a journal to Parquet files."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import click

from jobqueue.cli.journal.arguments import CannotBegin, named, reading_journal
from jobqueue.errors import missing_library

if TYPE_CHECKING:
    from jobqueue.journal.export.run import Written

_DAY = click.DateTime(["%Y-%m-%d"])
_KINDS = ("events", "deliveries", "jobs")


class _Kinds(click.ParamType[tuple[str, ...]]):
    name = "kinds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        kinds = tuple(dict.fromkeys(value.split(",")))
        if not set(kinds) <= set(_KINDS):
            self.fail(f"{value!r} is not one or more of {','.join(_KINDS)}", param, ctx)
        return kinds


@click.command("export")
@reading_journal("the journal [JOBQUEUE_JOURNAL]")
@click.option(
    "--out", required=True, metavar="FOLDER", help="folder for the files, or a URI such as s3://bucket/folder"
)
@click.option(
    "--what", type=_Kinds(), default="events", metavar="KIND,...", help=f"which of {', '.join(_KINDS)} [events]"
)
@click.option("--since", type=_DAY, metavar="DATE", help="the first day, in UTC [the journal's first]")
@click.option("--until", type=_DAY, metavar="DATE", help="the first day that is left out, in UTC [none]")
def export_command(
    url_from: str | None,
    url_file: str | None,
    source: str | None,
    out: str,
    what: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
) -> None:
    """Write a journal to Parquet files, for Spark and others.

    A repeated run writes what was recorded since the last one, and closes the days that are over. It may be killed
    and run again. Exit code 1: it stopped before the end; 2: it could not begin.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise CannotBegin(missing_library("the export", "pyarrow", "journal-parquet"))
    url = _checked(named(url_from, url_file) or os.environ.get("JOBQUEUE_JOURNAL"))
    asyncio.run(_export(url, out, source, what, (since and since.date(), until and until.date())))


def _checked(url: str | None) -> str:
    """The URL of a database whose libraries are installed. Raises UsageError, CannotBegin."""
    from jobqueue.journal.url import Refused, address  # noqa: PLC0415 - most commands need no journal

    if not url:
        raise click.UsageError("name the journal by --from, --from-file or JOBQUEUE_JOURNAL")
    try:
        return address(url).url
    except Refused as error:
        raise CannotBegin(str(error)) from None


async def _export(
    url: str, out: str, source: str | None, what: tuple[str, ...], days: tuple[date | None, date | None]
) -> None:
    from rich.console import Console  # noqa: PLC0415 - help does not wait for it

    from jobqueue.journal.export.folder import Foreign  # noqa: PLC0415
    from jobqueue.journal.export.run import opened  # noqa: PLC0415
    from jobqueue.journal.store import Away  # noqa: PLC0415
    from jobqueue.journal.url import Refused  # noqa: PLC0415

    begun = False
    try:
        with Console(stderr=True).status("reading the journal") as status:  # shown on a terminal only
            async with opened(url, out, source) as export:
                begun = True
                for kind in what:
                    written = await export.write(kind, *days, lambda where, rows: status.update(f"{where}: {rows:,}"))
                    click.echo(_sentence(kind, written))
    except (Refused, Foreign) as error:
        raise CannotBegin(str(error)) from None
    except (Away, OSError) as error:
        message = f"{error}. What was written is whole: run it again to write the rest" if begun else str(error)
        raise (click.ClickException if begun else CannotBegin)(message) from None


def _sentence(kind: str, written: Written) -> str:
    closed = f"; days closed: {written.closed:,}" if written.closed else ""
    return f"{kind}: {written.rows:,}; new files: {written.files:,}{closed}"
