"""The command line: the group, and `serve`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from buckets.errors import JobQueueError
from jobqueue import __version__, settings
from jobqueue.cli import service_commands
from jobqueue.cli.callbacks import callbacks_command
from jobqueue.errors import SettingsError

if TYPE_CHECKING:
    from jobqueue.process import Lifecycle

_EXAMPLES = """
jobqueue serves on {url} - try, from another terminal:

  curl {url}/command -d '{{"command":"add","topic":"order-close","id":"order-close:1","delay":5,"body":{{"order":1}}}}'
  curl {url}/command -d '{{"command":"pop","topic":"order-close","wait":10}}'
  curl {url}/command -d '{{"command":"finish","id":"order-close:1"}}'
"""


class Sections(click.Group):
    """Lists the service's own commands first in the help, then those that ask a running one, as the protocol does."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.asking = service_commands.commands()
        for command in self.asking:
            self.add_command(command)

    def list_commands(self, ctx: click.Context) -> list[str]:
        asking = [str(command.name) for command in self.asking]
        return [name for name in self.commands if name not in asking] + asking

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        first = len(names) - len(self.asking)
        width = max(map(len, names))
        for title, some in (("The service", names[:first]), ("Asking a running service", names[first:])):
            with formatter.section(title):
                rows = [(name.ljust(width), self.commands[name].get_short_help_str(70)) for name in some]
                formatter.write_dl(rows)


@click.group(cls=Sections, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jobqueue")
def main() -> None:
    """A delay-queue service: jobs over HTTP, kept in Redis, handed to workers on time."""


def _settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that set settings."""
    for option in (
        click.option("--namespace", metavar="NS", help="separates services that share a Redis [jq]"),
        click.option("--data", metavar="DIR", help="data directory of the embedded Redis [jobqueue-data]"),
        click.option("--redis", metavar="URL", help="use this Redis instead of the embedded one"),
        click.option("--port", type=int, help="port to listen on; 0: any free port [8000]"),
        click.option("--host", help="address to listen on [127.0.0.1]"),
        click.option("--config", metavar="FILE", help="settings file (TOML); see conf/jobqueue.toml"),
    ):
        command = option(command)
    return command


@main.command("serve")
@_settings
@click.option(
    "--workers", type=int, metavar="N", help="processes that answer on the port; 0: according to the cores [0]"
)
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="format of the logs [auto]")
@click.option(
    "--test", is_flag=True, help="a service for tests: in memory, on a free port, with a clock that you advance"
)
@click.option("--examples", is_flag=True, help="print three curl commands to try")
def serve_command(config: str | None, examples: bool, test: bool, **flags: Any) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    # Loading the service takes 0.3 s: commands that ask a running one do not wait for it.
    from jobqueue import logs, process  # noqa: PLC0415
    from jobqueue.workers import cores  # noqa: PLC0415

    try:
        chosen, file = settings.load(flags, config), settings.file_of(config)
        if test:
            chosen = settings.for_tests(chosen, flags)
        workers = cores.workers_for(chosen.workers)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    process.keep_standard_streams()
    logs.set_up(chosen.log_level, chosen.log_format)

    def started(url: str) -> None:
        if examples:
            click.echo(_EXAMPLES.format(url=url))

    reread = (lambda: settings.load(flags, config)) if file else None
    try:
        with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
            runner.run(process.live(_service(chosen, workers, test=test), chosen, started, reread))
    except (JobQueueError, OSError) as error:
        raise click.ClickException(process.refusal(error, chosen)) from None


def _service(chosen: settings.Settings, workers: int, *, test: bool) -> Lifecycle:
    """The service, or a supervisor of several workers, which does not load it."""
    if test:
        from jobqueue.testing import TestService  # noqa: PLC0415

        return TestService(chosen)
    if workers == 1:
        from jobqueue.app import Service  # noqa: PLC0415

        return Service(chosen)
    from jobqueue.workers.supervisor import Supervisor  # noqa: PLC0415

    return Supervisor(chosen, workers)


@main.command("check")
@_settings
def check_command(config: str | None, **flags: Any) -> None:
    """Check settings, Redis and the service, and report what is wrong. Exit code 1: something is bad."""
    from jobqueue import logs  # noqa: PLC0415 - as above
    from jobqueue.cli.check import check  # noqa: PLC0415

    async def report() -> bool:
        passed = True
        async for finding in check(flags, config):
            click.echo(str(finding))
            passed = passed and finding.level != "bad"
        return passed

    logs.set_up("error", "auto")  # a Redis that is away is a finding, not an event
    sys.exit(0 if asyncio.run(report()) else 1)


@main.command("fsck")
@click.option("--repair", is_flag=True, help="repair what is found; unreadable records are set aside")
@click.option("--config", metavar="FILE", help="settings file (TOML); see conf/jobqueue.toml")
@click.option("--redis", metavar="URL", help="the Redis of the service, if it is not the embedded one")
@click.option("--data", metavar="DIR", help="data directory of the embedded Redis [jobqueue-data]")
@click.option("--namespace", metavar="NS", help="namespace to check [jq]")
@click.option("--json", "as_json", is_flag=True, help="print the findings as JSON")
def fsck_command(repair: bool, config: str | None, as_json: bool, **flags: Any) -> None:
    """Check the data in Redis while the service runs. Exit code 1: faults are left; 2: it could not check."""
    from jobqueue.cli.fsck import inspect  # noqa: PLC0415 - as above

    sys.exit(inspect(flags, config, repair=repair, as_json=as_json))


@main.command("move")
@click.option("--from", "old", metavar="URL", required=True, help="the Redis to move the jobs from")
@click.option("--to", "new", metavar="URL", required=True, help="the Redis to move the jobs to")
@click.option("--namespace", metavar="NS", default="jq", help="namespace, the same on both [jq]")
@click.option("--rest", type=click.FloatRange(0), default=1.0, metavar="S", help="pause after each second of work [1]")
def move_command(old: str, new: str, namespace: str, rest: float) -> None:
    """Move all jobs to another Redis while services run on both. Exit code 1: some are left; 2: it could not start."""
    from jobqueue.cli.migrate import move  # noqa: PLC0415 - as above

    sys.exit(move(old, new, namespace, rest))


main.add_command(callbacks_command)
