"""The command group `jobqueue operation` and its commands."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from jobqueue.cli import access, options, times
from jobqueue.schema import params

if TYPE_CHECKING:
    from jobqueue.cli.ask import Talk

_KINDS = ("kick", "delete", "run", "reschedule", "find")


def _asking(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which service to ask, and how to show its answer."""
    as_json = click.option("--json", "as_json", is_flag=True, help="print JSON on a terminal too")
    return access.asking(as_json(command))


_WAIT = click.option("--wait", is_flag=True, help="wait for its end, and show how far it is")
_ID = click.argument("operation", metavar="ID")


def _filtering(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each member of a filter."""
    members = options.parameters("operation", params.Filter)
    command.__dict__.setdefault("__click_params__", []).extend(reversed(members))
    return command


@click.group("operation", short_help="Change all jobs that match a filter")
def operation_group() -> None:
    """Kick, delete, run or reschedule all jobs that match a filter.

    An operation is planned first, which counts the jobs and changes none. `start` then changes them in the background,
    at a bounded rate. Only jobs that matched and were there when it was planned are changed, each once. There is no
    undo.
    """


def _hold(talk: Talk, as_json: bool, given: dict[str, Any]) -> None:
    # Loading aiohttp takes 0.25 s: `--help` and a wrong option do not wait for it.
    from jobqueue.cli import ask  # noqa: PLC0415
    from jobqueue.cli.client import Client  # noqa: PLC0415
    from jobqueue.cli.output import Output  # noqa: PLC0415

    url, files = access.asked(given)
    client = Client(url, access.shown(url, files))
    fields = options.fields_of(given)
    sys.exit(asyncio.run(ask.hold(talk, client, fields, ask.Extras(), Output(as_json))))


@operation_group.command(
    "plan",
    short_help="Count the jobs that match a filter",
    epilog=f"DURATION: {times.DURATIONS}.\n\nTIME: {times.TIMES}. When jobs died or were created also takes how long "
    "ago, such as 2h.",
)
@click.argument("kind", type=click.Choice(_KINDS))
@_filtering
@click.option(
    "--shift",
    type=options.Typed("duration", times.shift),
    metavar="[-]DURATION",
    help="reschedule: by how much later the jobs are due, or earlier: --shift -2h",
)
@click.option(
    "--at", type=options.Typed("time", times.moment), metavar="TIME", help="reschedule: when they are due, instead"
)
@click.option(
    "--spread", type=options.DURATION, metavar="DURATION", help="reschedule: spread the jobs over this time after --at"
)
@_asking
def plan_command(
    kind: str,
    shift: float | None,
    at: float | str | None,
    spread: float | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Count the jobs that match a filter, and change none. The answer names the plan, which can be started for 15
    minutes.

    --topic is needed, except to find by --prefix; * stands for any characters and ? for one. A kick takes dead jobs, a
    run and a reschedule delayed ones. A find lists up to 1,000 ids, and needs no start.

    For example: jobqueue operation plan kick --topic example-orders --reason timeout --died-from 2h
    """
    from jobqueue.cli.operation import talks  # noqa: PLC0415 - as above

    files = {name: given.pop(name) for name in tuple(given) if name not in params.FILTER}
    wanted = {name: value for name, value in given.items() if value is not None}
    asked = {"kind": kind, "filter": wanted, "shift": shift, "at": at, "spread": spread}
    _hold(talks.plan, as_json, files | asked)


@operation_group.command("start", short_help="Change the jobs of a plan")
@click.argument("plan")
@click.option("--expect", type=int, metavar="N", help="the count of the plan; any other number is refused")
@click.option("--rate", type=int, metavar="N", help="jobs a second at most, up to 20000 [1000]")
@_WAIT
@_asking
def start_command(wait: bool, as_json: bool, **given: Any) -> None:
    """Change the jobs of a plan, in the background. Without --expect it shows how many there are, and asks.

    With --wait, exit code 1: it failed, or was cancelled. Ctrl-C ends the waiting alone.
    """
    from jobqueue.cli.operation import talks  # noqa: PLC0415 - as above

    _hold(partial(talks.start, wait), as_json, given)


def _steering(do: str, summary: str) -> None:
    @operation_group.command(do, help=summary)
    @_ID
    @_asking
    def command(as_json: bool, **given: Any) -> None:
        from jobqueue.cli.operation import talks  # noqa: PLC0415 - as above

        _hold(partial(talks.steer, do), as_json, given)


_steering("pause", "Halt an operation.")
_steering("resume", "Go on with a paused operation.")
_steering("cancel", "End an operation. Jobs that it has changed stay as they are.")


@operation_group.command("get", short_help="Show an operation")
@_ID
@_WAIT
@_asking
def get_command(wait: bool, as_json: bool, **given: Any) -> None:
    """Show an operation, and how far it is; of a find, the ids.

    With --wait, exit code 1: it failed, or was cancelled. Ctrl-C ends the waiting alone.
    """
    from jobqueue.cli.operation import talks  # noqa: PLC0415 - as above

    _hold(partial(talks.get, wait), as_json, given)


@operation_group.command("list")
@_asking
def list_command(as_json: bool, **given: Any) -> None:
    """List the newest 100 operations, the newest first."""
    from jobqueue.cli.operation import talks  # noqa: PLC0415 - as above

    _hold(talks.listing, as_json, given)
