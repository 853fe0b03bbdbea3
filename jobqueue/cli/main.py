"""The command line: the group, `serve`, and the commands that set a service up: its settings file, its health check,
and completion in a shell.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import shell_completion

from buckets.errors import JobQueueError
from jobqueue import __version__, settings
from jobqueue.access.secret_values import read_secret
from jobqueue.cli import access, healthcheck, service_commands
from jobqueue.cli.console.command import console_command
from jobqueue.cli.journal.arguments import reaching_redis
from jobqueue.cli.journal.audit import audit_group
from jobqueue.cli.journal.commands import journal_group
from jobqueue.cli.journal.explain import explain_command
from jobqueue.cli.journal.restore import restore_command
from jobqueue.cli.operation.commands import operation_group
from jobqueue.cli.outbox import check_outbox, check_table, outbox_command
from jobqueue.cli.sinks import callbacks_command, deliver_command
from jobqueue.cli.sizing import sizing_command
from jobqueue.cli.token.commands import token_group
from jobqueue.errors import SettingsError
from jobqueue.schema import commands, mistakes

if TYPE_CHECKING:
    from jobqueue_client.access import AccessFields

    from jobqueue.health.findings import Findings
    from jobqueue.process import Lifecycle


_VARIABLE = "_JOBQUEUE_COMPLETE"  # with which a shell asks click for completions
_LOADED = {
    "bash": '~/.bashrc: eval "$(jobqueue completion bash)"',
    "zsh": '~/.zshrc, after compinit: eval "$(jobqueue completion zsh)"',
    "fish": "~/.config/fish/config.fish: jobqueue completion fish | source",
}


@click.command("config", short_help="Print a settings file with every setting and its default")
@click.option("--schema", is_flag=True, help="print the JSON Schema of settings files instead, for editors")
def config_command(schema: bool) -> None:
    """Print a settings file with every setting and its default, for `serve --config`.

    Keep the lines that you change: a setting that is not in the file has its default. Its first line names the schema
    for editors: `jobqueue config --schema > jobqueue.schema.json` puts the schema beside it.
    """
    from jobqueue.reference import settings_schema  # noqa: PLC0415 - the reference loads every command

    click.echo(settings_schema.text() if schema else settings_schema.EXAMPLE.read_bytes(), nl=False)


@click.command(
    "completion",
    short_help="Print what completes commands in a shell",
    epilog="\n\n".join(_LOADED.values()),
)
@click.argument("shell", type=click.Choice([*_LOADED]))
@click.pass_context
def completion_command(ctx: click.Context, /, shell: str) -> None:
    """Print a script by which a shell completes the commands and options of jobqueue. Each completion takes as long as
    `jobqueue --help`."""
    completer = shell_completion.get_completion_class(shell)
    assert completer
    click.echo(completer(ctx.find_root().command, {}, "jobqueue", _VARIABLE).source())


def _healthcheck(**given: Any) -> None:
    sys.exit(healthcheck.run(**given))


healthcheck_command = click.Command(
    "healthcheck",
    params=[
        *(click.Option([f"--{name}"], metavar=metavar, help=words) for name, metavar, words in healthcheck.VALUES),
        click.Option(["--live"], is_flag=True, help=healthcheck.LIVE),
    ],
    callback=_healthcheck,
    short_help=healthcheck.SUMMARY,
    help=f"{healthcheck.SUMMARY}.\n\n{healthcheck.DETAILS}",
)


_EXAMPLES = """
jobqueue serves on {url} - try, from another terminal:

  curl {url}/command -d '{{"command":"add","topic":"example-close-order","id":"example:1","delay":5,"body":1}}'
  curl {url}/command -d '{{"command":"pop","topic":"example-close-order","wait":10}}'
  curl {url}/command -d '{{"command":"finish","id":"example:1"}}'

  export PATH={programs}:$PATH    # for the command line: jobqueue stats
"""


def _asking(section: str) -> tuple[str, ...]:
    """The commands of a section that ask a service."""
    return tuple(name for name, row in commands.COMMANDS.items() if row.section == section)


# What the help lists, and where.
_SECTIONS = {
    "Run a service": ("serve", "console", "callbacks", "deliver"),
    commands.JOBS: _asking(commands.JOBS),
    commands.TOPICS: _asking(commands.TOPICS),
    commands.HISTORY: (*_asking(commands.HISTORY), "audit", "journal", "restore"),
    "Set up": ("sizing", "config", "healthcheck", "completion"),
    commands.SERVICE: ("check", "doctor", *_asking(commands.SERVICE), "fsck", "move", "upgrade"),
}


class Sections(click.Group):
    """Adds a command for each command of the protocol, and lists all commands in sections in the help."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        for command in service_commands.commands():
            self.add_command(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        meant = "" if args[0] in self.commands else mistakes.command_elsewhere(args[0])
        if meant:
            raise click.UsageError(f"No such command {args[0]!r}{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for title, names in _SECTIONS.items():
            with formatter.section(title):
                shown = (self.commands[name] for name in names if name in self.commands)
                room = formatter.width - width - 6
                formatter.write_dl(
                    [(f"{each.name}".ljust(width), each.get_short_help_str(room).removesuffix(".")) for each in shown]
                )


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 1000}  # as wide as the terminal


@click.group(cls=Sections, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="jobqueue")
def main() -> None:
    """A delay-queue service: jobs over HTTP, stored in Redis, delivered to workers when they are due."""


_CONSOLE = """its web console is at {url}
"""


def _settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that set settings."""
    for option in (
        click.option("--namespace", metavar="NS", help="separates services that share a Redis [jq]"),
        click.option("--data", metavar="DIR", help="data directory of the embedded Redis [jobqueue-data]"),
        click.option("--redis-file", metavar="FILE", help="file with the URL of the Redis, instead of --redis"),
        click.option("--redis", metavar="URL", help="use this Redis instead of the embedded one"),
        click.option("--port", type=int, help="port to listen on; 0: any free port [8000]"),
        click.option("--host", help="address to listen on [127.0.0.1]"),
        click.option("--config", metavar="FILE", help="settings file (TOML); `jobqueue config` prints one"),
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
@click.option("--examples", is_flag=True, help="print commands to try")
def serve_command(config: str | None, examples: bool, test: bool, **flags: Any) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    # Loading the service takes 0.3 s: commands that ask a running one do not wait for it.
    from jobqueue import logs, process  # noqa: PLC0415
    from jobqueue.workers import cores  # noqa: PLC0415
    from jobqueue.workers.console import console_url  # noqa: PLC0415

    try:
        loaded, file = settings.load_with_sources(flags, config), settings.file_of(config)
        chosen = loaded.settings
        if test:
            loaded = settings.for_tests(loaded, flags)
            chosen = loaded.settings
        workers = cores.workers_for(chosen.workers)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    process.keep_standard_streams()
    logs.set_up(chosen.log_level, chosen.log_format)

    def started(url: str) -> None:
        if examples:
            click.echo(_EXAMPLES.format(url=url, programs=shlex.quote(str(Path(sys.executable).parent))))
            if chosen.console_port:
                click.echo(_CONSOLE.format(url=console_url(chosen)))

    reread = (lambda: settings.load_with_sources(flags, config)) if file else None
    try:
        with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
            service = _service(chosen, workers, test=test)
            service.sources = loaded.sources
            runner.run(process.live(service, chosen, started, reread))
    except (JobQueueError, OSError) as error:
        raise click.ClickException(process.refusal(error, chosen)) from None


def _service(chosen: settings.Settings, workers: int, *, test: bool) -> Lifecycle:
    """The service, or a supervisor, which does not load the service. A supervisor is needed for several workers, or for
    a journal or console process beside one worker."""
    if test:
        from jobqueue.testing import TestService  # noqa: PLC0415

        return TestService(chosen)
    if workers == 1 and not (chosen.journal_run or chosen.console_port):
        from jobqueue.app import Service  # noqa: PLC0415

        return Service(chosen)
    from jobqueue.workers.supervisor import Supervisor  # noqa: PLC0415

    return Supervisor(chosen, workers)


def _examined(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which service to examine."""
    url = click.option("--url", envvar="JOBQUEUE_URL", show_envvar=True, help="look at the service that runs there")
    return url(access.accepted(_settings(command)))


@main.command("check", short_help="Check a service, its jobs, Redis and settings")
@_examined
@click.option("--outbox", metavar="URL", envvar="JOBQUEUE_OUTBOX", show_envvar=True, help="look at this outbox, too")
@click.option(
    "--outbox-table", default="jobqueue_outbox", show_default=True, metavar="NAME", help="the table of its rows"
)
@click.pass_context
def check_command(
    ctx: click.Context, /, url: str | None, config: str | None, outbox: str | None, outbox_table: str, **flags: Any
) -> None:
    """Check a running service and its jobs, or what `serve` would start here, and report what is wrong.

    With --url or JOBQUEUE_URL it asks that service. With other options, or without both, it checks the settings, the
    Redis and the service of this machine. Exit code 1: something is bad.
    """
    from jobqueue.cli.check.check import check  # noqa: PLC0415 - as above
    from jobqueue.cli.check.service import check_running  # noqa: PLC0415

    url, file, files = _place(ctx, url, config, flags)
    passed = _report(check_running(url, files) if url else check(flags, file, files))
    if outbox:
        check_table(outbox_table, "--outbox-table")
        passed = _report(check_outbox(outbox, outbox_table)) and passed
    sys.exit(0 if passed else 1)


@main.command("doctor", short_help="Check, and write a bundle for a report of a bug")
@_examined
@click.option("--bundle", metavar="FILE", help="write what was found to this .tar.gz, without secrets and jobs")
@click.pass_context
def doctor_command(
    ctx: click.Context, /, url: str | None, config: str | None, bundle: str | None, **flags: Any
) -> None:
    """Do what `check` does, then ask the running service what the token may do, and for a few of its figures.

    --bundle writes all of it to a file for a report of a bug, with versions, settings, figures and the facts of Redis.
    It has no secrets, bodies, ids or reasons of jobs; it has names of topics, hosts and files. Exit code 1: something
    is bad.
    """
    from jobqueue.cli.check.doctor import Bundle, Patient, examine  # noqa: PLC0415 - as above

    url, file, files = _place(ctx, url, config, flags)
    collected = Bundle() if bundle else None
    passed = _report(examine(Patient(url, flags, file, files), collected))
    if bundle and collected:
        try:
            collected.write(bundle)
        except OSError as error:
            raise click.ClickException(f"{bundle} cannot be written: {error.strerror}") from None
        click.echo(f"written to {bundle}; read it before you send it to anybody", err=True)
    sys.exit(0 if passed else 1)


def _place(
    ctx: click.Context, url: str | None, config: str | None, flags: dict[str, Any]
) -> tuple[str | None, settings.File | None, AccessFields]:
    """The URL of the service to examine, its settings file, and the token and TLS files to use. The URL is None if
    other options, which override JOBQUEUE_URL, say what to examine. Raises UsageError."""
    files = access.taken(flags)
    others = any(flag is not None for flag in flags.values())
    if url and (config or others):
        if ctx.get_parameter_source("url") is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("--url checks a running service, the other options one that is to be started")
        url = None
    if url:
        return url, None, files
    file = access.opened(config)
    url, files = (None if others else access.profile(file, files)) or (None, files)
    return url, file, files


def _report(findings: Findings) -> bool:
    """Print findings, and return True if none of them is bad."""
    from jobqueue import logs  # noqa: PLC0415 - as above
    from jobqueue.cli import humanize  # noqa: PLC0415
    from jobqueue.process import loop_factory  # noqa: PLC0415

    async def report() -> bool:
        passed = True
        async for finding in findings:
            click.echo(humanize.clean(str(finding)))
            passed = passed and finding.level != "bad"
        return passed

    logs.set_up("error", "auto")  # an unreachable Redis is a finding, not an event
    with asyncio.Runner(loop_factory=loop_factory()) as runner:  # errors are worded as under `serve`
        return runner.run(report())


@main.command("fsck")
@click.option("--repair", is_flag=True, help="repair what is found; unreadable records are set aside")
@click.option("--config", metavar="FILE", help="settings file (TOML); `jobqueue config` prints one")
@click.option("--redis", metavar="URL", help="the Redis of the service, if it is not the embedded one")
@click.option("--redis-file", metavar="FILE", help="file with the URL of the Redis, instead of --redis")
@click.option("--data", metavar="DIR", help="data directory of the embedded Redis [jobqueue-data]")
@click.option("--namespace", metavar="NS", help="namespace to check [jq]")
@click.option("--json", "as_json", is_flag=True, help="print the findings as JSON")
def fsck_command(repair: bool, config: str | None, as_json: bool, **flags: Any) -> None:
    """Check the data in Redis while the service runs. Exit code 1: faults are left; 2: it could not check."""
    from jobqueue.cli.fsck import inspect  # noqa: PLC0415 - as above

    sys.exit(inspect(flags, config, repair=repair, as_json=as_json))


@main.command("move")
@click.option("--from", "old", metavar="URL", help="the Redis to move the jobs from")
@click.option("--from-file", "old_file", metavar="FILE", help="file with its URL, instead of --from")
@click.option("--to", "new", metavar="URL", help="the Redis to move the jobs to")
@click.option("--to-file", "new_file", metavar="FILE", help="file with its URL, instead of --to")
@click.option("--namespace", metavar="NS", default="jq", help="namespace, the same on both [jq]")
@click.option("--rest", type=click.FloatRange(0), default=1.0, metavar="S", help="pause after each second of work [1]")
def move_command(
    old: str | None, old_file: str | None, new: str | None, new_file: str | None, namespace: str, rest: float
) -> None:
    """Move all jobs to another Redis while services run on both. Exit code 1: some are left; 2: it could not start."""
    from jobqueue.cli.migrate import move  # noqa: PLC0415 - as above

    sys.exit(move(_url("--from", old, old_file), _url("--to", new, new_file), namespace, rest))


@main.command("upgrade")
@reaching_redis
def upgrade_command(config: str | None, **flags: Any) -> None:
    """Change the namespace to the newest stored format while services run. Exit code 1: an older instance joined
    meanwhile; 2: it was refused."""
    from jobqueue.cli.migrate import upgrade_namespace  # noqa: PLC0415 - as above

    sys.exit(upgrade_namespace(flags, config))


def _url(option: str, url: str | None, file: str | None) -> str:
    """The URL that an option gives, or that is in the file of the corresponding `-file` option. Raises UsageError."""
    if (url is None) == (file is None):
        raise click.UsageError(f"one of {option} and {option}-file is needed")
    try:
        return read_secret(file, f"{option}-file") if file else url or ""
    except SettingsError as error:
        raise click.UsageError(str(error)) from None


main.add_command(console_command)
main.add_command(callbacks_command)
main.add_command(deliver_command)
main.add_command(outbox_command)
main.add_command(config_command)
main.add_command(healthcheck_command)
main.add_command(journal_group)
main.add_command(restore_command)
main.add_command(completion_command)
main.add_command(explain_command)
main.add_command(audit_group)
main.add_command(sizing_command)
main.add_command(operation_group)
main.add_command(token_group)
