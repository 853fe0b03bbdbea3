"""`jobqueue journal ddl` and `migrate`: the tables of a journal."""

from __future__ import annotations

import os

import click
from click.core import ParameterSource

from jobqueue.access.secret_values import read_secret
from jobqueue.cli.journal.typed import warn_of_password
from jobqueue.errors import SettingsError
from jobqueue.journal.url import SCHEMES, Refused, address, need


class _CannotBegin(click.ClickException):
    """Nothing was done."""

    exit_code = 2


@click.command("ddl", short_help="Print the statements that make a journal's tables")
@click.option("--for", "scheme", type=click.Choice(SCHEMES), help="for which database [that of JOBQUEUE_JOURNAL]")
def ddl_command(scheme: str | None) -> None:
    """Print all statements that make the tables, partitions and views of a new journal.

    They are for databases in which programs may not make tables; elsewhere `jobqueue journal run` makes them itself.
    There are partitions for the next two days: whoever makes the tables then makes those of later days, too.
    """
    url = os.environ.get("JOBQUEUE_JOURNAL", "")
    if scheme is None and not url:
        raise click.UsageError("name the database by --for or JOBQUEUE_JOURNAL")
    try:
        need()
        scheme = scheme or address(url).scheme
    except Refused as error:
        raise _CannotBegin(str(error)) from None
    from jobqueue.journal.schema import ddl  # noqa: PLC0415 - loading SQLAlchemy takes 0.2 s

    for statement in ddl(scheme):
        click.echo(f"{statement};\n")


@click.command("migrate", short_help="Bring the tables of a journal up to date")
@click.option("--to", "url", metavar="URL", envvar="JOBQUEUE_JOURNAL", help="the journal [JOBQUEUE_JOURNAL]")
@click.option("--to-file", metavar="FILE", help="file with the URL, instead of --to")
@click.pass_context
def migrate_command(context: click.Context, url: str | None, to_file: str | None) -> None:
    """Bring the tables of a journal up to date, which an older version of jobqueue has made.

    Stop those who write and read the journal first, and make a backup. Exit code 2: nothing was changed.
    """
    from_line = context.get_parameter_source("url") is ParameterSource.COMMANDLINE
    warn_of_password(url if from_line else None, "--to")
    if to_file is not None and from_line:
        raise click.UsageError("--to and --to-file exclude each other")
    try:
        url = read_secret(to_file, "--to-file") if to_file is not None else url
        if not url:
            raise click.UsageError("name the journal by --to, --to-file or JOBQUEUE_JOURNAL")
        before, after = _migrate(url)
    except (Refused, SettingsError) as error:
        raise _CannotBegin(str(error)) from None
    click.echo("the journal is up to date" if before == after else f"the journal is of revision {after} now")


def _migrate(url: str) -> tuple[str, str]:
    import asyncio  # noqa: PLC0415 - as above

    address(url)  # before what it may miss is loaded
    from jobqueue.journal.database import migrate  # noqa: PLC0415
    from jobqueue.journal.store import Away  # noqa: PLC0415

    try:
        return asyncio.run(migrate(url))
    except Away as error:
        raise Refused(f"the journal cannot be reached: {error}") from None
