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
    """The help lists the service's own commands first, then those that ask a running one, in the protocol's order."""

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
    """The flags that stand for settings."""
    for option in (
        click.option("--namespace", metavar="NS", help="keeps two services on one Redis apart [jq]"),
        click.option("--data", metavar="DIR", help="directory of our own Redis [jobqueue-data]"),
        click.option("--redis", metavar="URL", help="use this Redis instead of one of our own"),
        click.option("--port", type=int, help="port to listen on; 0: any free one [8000]"),
        click.option("--host", help="address to listen on [127.0.0.1]"),
        click.option("--config", metavar="FILE", help="settings in TOML; see conf/jobqueue.toml"),
    ):
        command = option(command)
    return command


@main.command("serve")
@_settings
@click.option("--workers", type=int, metavar="N", help="processes that answer on the port; 0: by the cores [0]")
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="form of the logs [auto]")
@click.option("--examples", is_flag=True, help="print three curl lines to try")
def serve_command(config: str | None, examples: bool, **flags: Any) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    # The service takes 0.3 s to load: the commands that ask a running one do not wait for it.
    from jobqueue import logs, process  # noqa: PLC0415
    from jobqueue.workers import cores  # noqa: PLC0415

    try:
        chosen, file = settings.load(flags, config), settings.file_of(config)
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
            runner.run(process.live(_service(chosen, workers), chosen, started, reread))
    except (JobQueueError, OSError) as error:
        raise click.ClickException(process.refusal(error, chosen)) from None


def _service(chosen: settings.Settings, workers: int) -> Lifecycle:
    """The service, or the supervisor of its workers, which need not load it."""
    if workers == 1:
        from jobqueue.app import Service  # noqa: PLC0415

        return Service(chosen)
    from jobqueue.workers.supervisor import Supervisor  # noqa: PLC0415

    return Supervisor(chosen, workers)


@main.command("check")
@_settings
def check_command(config: str | None, **flags: Any) -> None:
    """Look at settings, Redis and the service, and say what is wrong. Exit code 1: something is bad."""
    from jobqueue import logs  # noqa: PLC0415 - as above
    from jobqueue.cli.check import check  # noqa: PLC0415

    async def tell() -> bool:
        sound = True
        async for finding in check(flags, config):
            click.echo(str(finding))
            sound = sound and finding.level != "bad"
        return sound

    logs.set_up("error", "auto")  # a Redis that is away is a finding, and no event
    sys.exit(0 if asyncio.run(tell()) else 1)


@main.command("fsck")
@click.option("--repair", is_flag=True, help="mend what is found; what cannot be read is set aside")
@click.option("--config", metavar="FILE", help="settings in TOML; see conf/jobqueue.toml")
@click.option("--redis", metavar="URL", help="the Redis of the service, if it is not one of our own")
@click.option("--data", metavar="DIR", help="directory of our own Redis [jobqueue-data]")
@click.option("--namespace", metavar="NS", help="which one [jq]")
@click.option("--json", "as_json", is_flag=True, help="print the findings as JSON")
def fsck_command(repair: bool, config: str | None, as_json: bool, **flags: Any) -> None:
    """Check all that is in Redis, while the service runs. Exit code 1: faults are left; 2: it could not check."""
    from jobqueue.cli.fsck import inspect  # noqa: PLC0415 - as above

    sys.exit(inspect(flags, config, repair=repair, as_json=as_json))


@main.command("move")
@click.option("--from", "old", metavar="URL", required=True, help="the Redis that is to be empty")
@click.option("--to", "new", metavar="URL", required=True, help="the Redis that is to have the jobs")
@click.option("--namespace", metavar="NS", default="jq", help="which one, on both [jq]")
@click.option("--rest", type=click.FloatRange(0), default=1.0, metavar="S", help="pause after each second of work [1]")
def move_command(old: str, new: str, namespace: str, rest: float) -> None:
    """Move all jobs to another Redis, while services run on both. Exit code 1: some are left; 2: it could not begin."""
    from jobqueue.cli.migrate import move  # noqa: PLC0415 - as above

    sys.exit(move(old, new, namespace, rest))


main.add_command(callbacks_command)
