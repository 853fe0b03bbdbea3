"""`jobqueue explain`: why a job is where it is, and what happened to it."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from jobqueue.cli import access
from jobqueue.cli.journal.arguments import CannotBegin, Id, named, reading_journal
from jobqueue.schema import fields

if TYPE_CHECKING:
    from jobqueue.cli.client import Answer, Client
    from jobqueue.cli.output import Output


class _Life(click.ParamType[float | str]):
    name = "life"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        if value == "all":
            return "all"
        life = _number(value)
        if not 0 <= life <= fields.LAST_S:
            self.fail(
                f"{value!r} is neither the number of a life, nor the time at which it was created, nor all", param, ctx
            )
        return life


def _number(typed: str) -> float:
    """The number of a life, or its time in Unix seconds, which may also be typed as it is printed, in UTC. Returns a
    number below 0 for anything else."""
    with suppress(ValueError):
        return float(typed)
    with suppress(ValueError):
        created = datetime.fromisoformat(typed.removesuffix(" UTC"))
        return (created if created.tzinfo else created.replace(tzinfo=UTC)).timestamp()
    return -1.0


@click.command("explain", short_help="Explain why a job is where it is, and what happened to it")
@click.argument("job_id", metavar="ID", type=Id())
@click.option(
    "--life",
    type=_Life(),
    metavar="N|TIME|all",
    help="the life of this number (1: the first), that was created then (UTC, as printed), or all lives [the newest]",
)
@access.asking
@reading_journal("read this journal, and ask no service")
@click.option("--json", "as_json", is_flag=True, help="print JSON on a terminal too")
def explain_command(
    job_id: str,
    life: float | str | None,
    url_from: str | None,
    url_file: str | None,
    source: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Explain why a job is where it is: late, waiting, dead, gone. Where the service has a journal, also what happened
    to the job, how late each step was and why.

    Times are UTC, by Redis's clock. --from reads a journal without a service. Exit code 1: nobody knows the job.
    """
    from jobqueue.cli import ask  # noqa: PLC0415 - as in service_commands
    from jobqueue.cli.client import Client  # noqa: PLC0415
    from jobqueue.cli.output import Output  # noqa: PLC0415

    out, journal = Output(as_json), named(url_from, url_file)
    if journal is not None:
        sys.exit(asyncio.run(_from_journal(journal, source, job_id, life, out)))
    if source is not None:
        raise click.UsageError("--source goes with --from")
    asked = {"id": job_id} | ({} if life is None else {"life": life})

    async def talk(client: Client, fields: dict[str, Any], extras: ask.Extras, out: Output) -> int:
        _show(await client.ask("explain", **fields), out)
        return ask.DONE

    url, files = access.asked(given)
    client = Client(url, access.shown(url, files))
    sys.exit(asyncio.run(ask.hold(talk, client, asked, ask.Extras(), out)))


async def _from_journal(journal: str, source: str | None, job_id: str, life: float | str | None, out: Output) -> int:
    import msgspec  # noqa: PLC0415 - as above

    from buckets.errors import NotFound  # noqa: PLC0415
    from jobqueue.cli import ask, output  # noqa: PLC0415
    from jobqueue.cli.client import Answer  # noqa: PLC0415
    from jobqueue.journal.explainer import explain_from  # noqa: PLC0415
    from jobqueue.journal.store import Away  # noqa: PLC0415
    from jobqueue.journal.url import Refused  # noqa: PLC0415

    try:
        found = await explain_from(journal, source, job_id, life)
    except NotFound as error:
        output.complain(f"explain {job_id}: {error.message}")
        return ask.REFUSED
    except (Refused, Away) as error:
        raise CannotBegin(str(error)) from None
    _show(Answer(found, msgspec.json.encode(found)), out)
    return ask.DONE


def _show(answer: Answer, out: Output) -> None:
    from jobqueue.cli.journal.explained import lines  # noqa: PLC0415 - as above

    if out.as_json:
        out.json(answer)
    else:
        for line in lines(answer.fields):
            out.say(line)
