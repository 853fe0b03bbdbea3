"""The options that say which journal a command reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from jobqueue.access.secret_values import read_secret
from jobqueue.cli.journal.typed import warn_of_password
from jobqueue.errors import SettingsError


class CannotBegin(click.ClickException):
    """The journal cannot be read."""

    exit_code = 2


def parameters(help_text: str) -> list[click.Option]:
    """The options."""
    return [
        click.Option(["--from", "url_from"], metavar="URL", help=help_text),
        click.Option(["--from-file", "url_file"], metavar="FILE", help="file with its URL, instead of --from"),
        click.Option(["--source"], metavar="NAME", help="which source, if the journal has several [the only one]"),
    ]


def reading_journal(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: add the options to a command that click makes of a function."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        command.__dict__.setdefault("__click_params__", []).extend(reversed(parameters(help_text)))
        return command

    return add


def named(url: str | None, file: str | None) -> str | None:
    """The URL that the options give; None: they give none. Raises UsageError."""
    if url is not None and file is not None:
        raise click.UsageError("--from and --from-file exclude each other")
    warn_of_password(url, "--from")
    try:
        return read_secret(file, "--from-file") if file is not None else url
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
