"""`jobqueue journal export`: writes a journal to Parquet files."""

from __future__ import annotations

import asyncio
import importlib.util
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import click

from jobqueue.access.secret_values import read_secret
from jobqueue.errors import SettingsError

if TYPE_CHECKING:
    from jobqueue.journal.export.run import Written

_DAY = click.DateTime(["%Y-%m-%d"])
_KINDS = ("events", "deliveries", "jobs")


class _CannotBegin(click.ClickException):
    """Nothing was written."""

    exit_code = 2


class _Kinds(click.ParamType[tuple[str, ...]]):
    name = "kinds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        kinds = tuple(dict.fromkeys(value.split(",")))
        if not set(kinds) <= set(_KINDS):
            self.fail(f"{value!r} is not one or more of {','.join(_KINDS)}", param, ctx)
        return kinds


@click.command("export")
@click.option("--from", "url", metavar="URL", envvar="JOBQUEUE_JOURNAL", show_envvar=True, help="the journal")
@click.option("--from-file", "url_file", metavar="FILE", help="file with its URL, instead of --from")
@click.option(
    "--out", required=True, metavar="FOLDER", help="folder for the files, or a URI such as s3://bucket/folder"
)
@click.option("--source", metavar="NAME", help="which source, if the journal has several [the only one]")
@click.option("--what", type=_Kinds(), default="events", metavar="KIND,...", help=f"of {', '.join(_KINDS)} [events]")
@click.option("--since", type=_DAY, metavar="DATE", help="the first day, in UTC [the journal's first]")
@click.option("--until", type=_DAY, metavar="DATE", help="the first day that is left out, in UTC [none]")
@click.pass_context
def export_command(
    ctx: click.Context,
    /,
    url: str | None,
    url_file: str | None,
    out: str,
    source: str | None,
    what: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
) -> None:
    """Write a journal to Parquet files, for Spark and others.

    A repeated run writes what has been told since the last one, and closes the days that are over. It may be killed
    and run again. Exit code 1: it stopped before the end; 2: it could not begin.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise _CannotBegin("the export needs the library pyarrow: pip install 'jobqueue[journal-parquet]'")
    typed = ctx.get_parameter_source("url") is click.core.ParameterSource.COMMANDLINE
    days = (since and since.date(), until and until.date())
    asyncio.run(_export(_url(url, url_file, typed=typed), out, source, what, days))


def _url(url: str | None, file: str | None, *, typed: bool) -> str:
    """The URL of the journal. Raises UsageError."""
    from jobqueue.journal.url import has_password  # noqa: PLC0415 - most commands need no journal

    if file is not None and typed:
        raise click.UsageError("--from and --from-file exclude each other")
    try:
        url = read_secret(file, "--from-file") if file else url
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    if not url:
        raise click.UsageError("the journal is not named: give --from, --from-file or JOBQUEUE_JOURNAL")
    if typed and has_password(url):
        click.echo("Warning: everybody on this machine can see the password in --from; use --from-file", err=True)
    return url


async def _export(
    url: str, out: str, source: str | None, what: tuple[str, ...], days: tuple[date | None, date | None]
) -> None:
    from rich.console import Console  # noqa: PLC0415 - as above

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
        raise _CannotBegin(str(error)) from None
    except (Away, OSError) as error:
        message = f"{error}. What was written is whole: run it again to write the rest" if begun else str(error)
        raise (click.ClickException if begun else _CannotBegin)(message) from None


def _sentence(kind: str, written: Written) -> str:
    closed = f"; days closed: {written.closed:,}" if written.closed else ""
    return f"{kind}: {written.rows:,}; new files: {written.files:,}{closed}"
