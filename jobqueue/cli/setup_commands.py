"""The commands that set a service up: its settings file, its health check, and completion in a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click import shell_completion

import jobqueue
from jobqueue.cli import healthcheck

_SETTINGS_FILE = Path(jobqueue.__file__).parent / "reference" / "jobqueue.toml"
_VARIABLE = "_JOBQUEUE_COMPLETE"  # by which click is asked for completions
_LOADED = {
    "bash": '~/.bashrc: eval "$(jobqueue completion bash)"',
    "zsh": '~/.zshrc, after compinit: eval "$(jobqueue completion zsh)"',
    "fish": "~/.config/fish/config.fish: jobqueue completion fish | source",
}


@click.command("config", short_help="Print a settings file with every setting and its default")
def config_command() -> None:
    """Print a settings file with every setting and its default, for `serve --config`.

    Keep the lines that you change: a setting that is not in the file has its default.
    """
    click.echo(_SETTINGS_FILE.read_bytes(), nl=False)


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
