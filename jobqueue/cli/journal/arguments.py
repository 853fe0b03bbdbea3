"""The arguments of the journal commands: which journal they read, and which Redis they connect to."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobqueue.access.secret_values import read_secret
from jobqueue.errors import SettingsError
from jobqueue.schema import fields

if TYPE_CHECKING:
    from buckets.shards import Shards
    from jobqueue.settings import Settings


_SOURCE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Id(click.ParamType[str]):
    """The id of a job."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not fields.is_id(value):
            self.fail(f"{value!r} cannot be an id, which is {fields.NAME}", param, ctx)
        return str(value)


class Pattern(click.ParamType[str]):
    """A pattern of topic names."""

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


def reaching_redis(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which Redis and namespace to use."""
    for option in (
        click.option("--namespace", metavar="NS", help="namespace of the service [jq]"),
        click.option("--data", metavar="DIR", help="data directory of the embedded Redis [jobqueue-data]"),
        click.option("--redis-file", metavar="FILE", help="file with the URL of the Redis, instead of --redis"),
        click.option("--redis", metavar="URL", help="the Redis of the service, if it is not the embedded one"),
        click.option("--config", metavar="FILE", help="settings file (TOML); `jobqueue config` prints one"),
    ):
        command = option(command)
    return command


@contextlib.asynccontextmanager
async def opened(chosen: Settings) -> AsyncIterator[Shards]:
    """The namespace of a service, which must exist: it is not created here. Raises JobQueueError."""
    from buckets.errors import Unavailable  # noqa: PLC0415 - help and errors do not wait for it
    from buckets.namespace import join  # noqa: PLC0415
    from buckets.shards import Shards  # noqa: PLC0415
    from jobqueue.redis_server.data_directory import running_at  # noqa: PLC0415
    from jobqueue.redis_server.opening import redis_at  # noqa: PLC0415

    redis = redis_at(chosen.redis or running_at(Path(chosen.data)), chosen.redis_timeout_s)
    try:
        yield Shards(redis, chosen.namespace, *await join(redis, chosen.namespace))
    except Unavailable as error:
        raise Unavailable(redis.trouble or error.message) from None
    finally:
        await redis.close()


class CannotBegin(click.ClickException):
    """The journal cannot be read."""

    exit_code = 2


def parameters(help_text: str) -> list[click.Option]:
    """The options that say which journal to read."""
    return [
        click.Option(["--from", "url_from"], metavar="URL", help=help_text),
        click.Option(["--from-file", "url_file"], metavar="FILE", help="file with its URL, instead of --from"),
        click.Option(["--source"], metavar="NAME", help="which source, if the journal has several [the only one]"),
    ]


def reading_journal(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that adds the options of `parameters` to a function that becomes a click command."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        command.__dict__.setdefault("__click_params__", []).extend(reversed(parameters(help_text)))
        return command

    return add


def named(url: str | None, file: str | None) -> str | None:
    """The URL that the options name, or None if they name none. Raises UsageError."""
    if url is not None and file is not None:
        raise click.UsageError("--from and --from-file exclude each other")
    warn_of_password(url, "--from")
    try:
        return read_secret(file, "--from-file") if file is not None else url
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
