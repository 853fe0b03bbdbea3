"""The command `jobqueue console` and its options."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from jobqueue import settings
from jobqueue.cli import access
from jobqueue.console.options import COLOURS
from jobqueue.errors import SettingsError, missing_library

_PORT = 8001


def _trusting(command: Any) -> Any:
    """Add the options for https services. There is no option for a token: each person shows their own."""
    options = [option for option in access.parameters() if option.name != "token_file"]
    command.__dict__.setdefault("__click_params__", []).extend(reversed(options))
    return command


@click.command("console", short_help="Serve a web console for a service")
@click.option(
    "--url",
    envvar="JOBQUEUE_URL",
    default=access.DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="where the service listens",
)
@_trusting
@click.option("--config", metavar="FILE", help="settings file (TOML), of which the console reads what concerns it")
@click.option("--host", "console_host", metavar="HOST", help="address to listen on [127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT", help=f"port to listen on; 0: any free port [{_PORT}]"
)
@click.option(
    "--name",
    "console_hosts",
    multiple=True,
    metavar="HOST",
    help="a name by which browsers reach it, as through a proxy; may be repeated",
)
@click.option("--title", "console_title", help="the title of its pages, such as the environment [jobqueue]")
@click.option("--colour", "console_colour", type=click.Choice(COLOURS), help="the colour of its top line [grey]")
@click.option("--read-only", "console_read_only", is_flag=True, default=None, help="offer and accept no actions")
@click.option("--base-path", "console_base_path", metavar="PATH", help="path in front of all others, for a proxy [/]")
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="format of the logs [auto]")
def console_command(url: str, config: str | None, port: int | None, **given: Any) -> None:
    """Serve a web console, in which people see and change what is in a service, until SIGTERM or Ctrl-C.

    It asks the service over HTTP, with the token of each person who signs in. Where the service asks for no tokens,
    everybody who reaches the console sees everything; actions are then offered on loopback only.
    """
    files = access.taken({**given, "token_file": None})
    flags = {name: value for name, value in given.items() if name not in files and value != ()}
    # Loading takes 0.3 s: `jobqueue --help` and a wrong option do not wait for it.
    try:
        from jobqueue.cli.console.chosen import options_of  # noqa: PLC0415
        from jobqueue.console import site  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise click.ClickException(missing_library("the console", error.name or "jinja2", "console")) from None
    from jobqueue import logs  # noqa: PLC0415

    url = url.rstrip("/")
    tls = access.shown(url, files).tls
    try:
        chosen = settings.load_of_console(flags, config)
        options = options_of(chosen, url, (chosen.console_port or _PORT) if port is None else port, tls)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    logs.set_up(chosen.log_level, chosen.log_format)
    try:
        asyncio.run(site.serve(options))
    except OSError as error:
        raise click.ClickException(f"it cannot listen on {options.host}:{options.port}: {error.strerror}") from None
