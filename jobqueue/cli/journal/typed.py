"""What the commands of the journal take, as it is typed."""

from __future__ import annotations

import re
from typing import Any

import click

from jobqueue.schema import fields

_SOURCE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Id(click.ParamType[str]):
    """The id of a job."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not fields.is_id(value):
            self.fail(f"{value!r} cannot be an id, which is {fields.NAME}", param, ctx)
        return str(value)


class Pattern(click.ParamType[str]):
    """Names of topics."""

    name = "pattern"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not fields.is_pattern(value):
            self.fail(f"{value!r} is no name of a topic, with * for any characters and ? for one", param, ctx)
        return str(value)


class Source(click.ParamType[str]):
    """The name of a source."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _SOURCE.fullmatch(value):
            self.fail(f"{value!r} is not 1 to 64 characters of A-Z a-z 0-9 . _ : -", param, ctx)
        return str(value)


def warn_of_password(url: str | None, option: str) -> None:
    """Warn where a URL on the command line has a password."""
    from jobqueue.journal.url import has_password  # noqa: PLC0415 - most commands need no journal

    if url is not None and has_password(url):
        warning = f"Warning: everybody on this machine can see the password in {option}; use {option}-file"
        click.echo(warning, err=True)
