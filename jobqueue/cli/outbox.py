"""`jobqueue outbox`: the relay of a transactional outbox and its DDL; and what `jobqueue check` finds in an outbox."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import click
from click.core import ParameterSource

from jobqueue.cli import access
from jobqueue.cli.journal.arguments import named
from jobqueue.health.findings import Finding, Findings

_NOT_BEGUN = 2
_KINDS = {"postgresql": "postgresql", "mariadb": "mysql", "mysql": "mysql", "sqlite": "sqlite"}
_LATE_S = 60.0  # a row that has waited for longer is worth a warning


@click.command("outbox", short_help="Hand on the rows that your own transactions wrote.")
@click.option(
    "--from",
    "database",
    metavar="URL",
    envvar="JOBQUEUE_OUTBOX",
    help="the database: postgresql://, mariadb://, sqlite:///",
)
@click.option("--from-file", "database_file", metavar="FILE", help="file with its URL, instead of --from")
@click.option("--table", default="jobqueue_outbox", show_default=True, metavar="NAME", help="the table of the rows")
@click.option("--schema", type=click.Choice([*_KINDS]), help="print the DDL of the table for this database, and end")
@click.option("--metrics-port", type=click.IntRange(1, 65535), metavar="PORT", help="serve /metrics there")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help="the address for it")
@access.asking
@click.option(
    "--log-format", type=click.Choice(["auto", "text", "json"]), default="auto", help="format of the logs [auto]"
)
def outbox_command(
    database: str | None,
    database_file: str | None,
    table: str,
    schema: str | None,
    metrics_port: int | None,
    metrics_host: str,
    log_format: str,
    **given: Any,
) -> None:
    """Hand the rows of an outbox to the service: jobs to add, update or delete that your own transactions wrote.

    It runs until SIGTERM or Ctrl-C, beside as many others as you like (SQLite: one). A row that was handed on is
    deleted; one that the service refuses stays, with the reason in its column error. `jobqueue
    check --outbox` reports both. Exit code 2: it could not begin.
    """
    # Loading takes 0.3 s: `jobqueue --help` and a wrong option do not wait for it.
    from jobqueue import logs  # noqa: PLC0415
    from jobqueue.outbox.table import ddl  # noqa: PLC0415

    check_table(table, "--table")
    if schema is not None:
        try:
            return click.echo(ddl(_KINDS[schema], table), nl=False)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    where = _database(database, database_file)
    url, files = access.asked(given)
    access.shown(url, files)
    logs.set_up("info", log_format)
    logging.getLogger("jobqueue_client").setLevel(logging.ERROR)
    work = _run(where, table, url, files, (metrics_host, metrics_port))
    from jobqueue.journal.url import Refused  # noqa: PLC0415 - as above

    try:
        asyncio.run(work)
        return None
    except (Refused, ValueError) as error:
        click.echo(f"Error: {error}", err=True)
    sys.exit(_NOT_BEGUN)


def check_table(name: str, option: str) -> None:
    """Raises UsageError unless a table may have this name."""
    from jobqueue.outbox.table import is_name  # noqa: PLC0415 - as above

    if not is_name(name):
        raise click.UsageError(f"{option}: {name!r} is not the name of a table, such as jobqueue_outbox or shop.outbox")


def _database(url: str | None, file: str | None) -> str:
    """The URL of the database that the options name, or else the variable."""
    from jobqueue.journal.url import FORMS, SCHEMES, without_password  # noqa: PLC0415 - as above

    is_option = click.get_current_context().get_parameter_source("database") is ParameterSource.COMMANDLINE
    where = named(url if is_option else None, file) or url
    if not where:
        raise click.UsageError("name the database by --from, --from-file or JOBQUEUE_OUTBOX")
    if where.partition("://")[0] not in SCHEMES:
        raise click.UsageError(f"not the URL of a database: {without_password(where)}; there are {FORMS}")
    return where


async def _run(where: str, table: str, url: str, files: Any, metrics: tuple[str, int | None]) -> None:
    from jobqueue_client import AsyncClient  # noqa: PLC0415 - as above

    from jobqueue.journal.url import address  # noqa: PLC0415 - as above
    from jobqueue.loops import stop_on_signals  # noqa: PLC0415 - as above
    from jobqueue.outbox.relay import Figures, Relay  # noqa: PLC0415 - as above
    from jobqueue.outbox.source import Source  # noqa: PLC0415 - as above

    figures = Figures()
    host, port = metrics
    if port is not None:
        try:
            figures.serve(host, port)
        except OSError as error:
            raise ValueError(f"--metrics-port: {error.strerror}") from None
    async with AsyncClient(url, retry_for_s=0, **files) as client:
        relay = Relay(Source(address(where), table), client, figures)
        stop_on_signals(relay.stop)
        await relay.run()


async def check_outbox(where: str, table: str) -> Findings:
    """What is wrong with an outbox."""
    from jobqueue.journal.store import Away  # noqa: PLC0415 - as above
    from jobqueue.journal.url import Refused, address  # noqa: PLC0415 - as above
    from jobqueue.outbox.source import Source  # noqa: PLC0415 - as above

    try:
        source = Source(address(where), table)
        try:
            await source.open(works=False)
            standing = await source.standing()
        finally:
            await source.close()
    except (Refused, Away) as error:
        yield Finding("bad", "outbox", str(error))
        return
    if standing.refused:
        why = "their column error says why, docs/outbox.md what to do"
        yield Finding(
            "bad", "outbox", f"refused rows, which hold up the later ones of their ids: {standing.refused}; {why}"
        )
    waited = f"the oldest row that may go has waited for {standing.behind_s:.1f} s"
    yield Finding("warn" if standing.behind_s > _LATE_S else "ok", "outbox", waited)
