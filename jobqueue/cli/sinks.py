"""`jobqueue callbacks`, a worker that makes the HTTP requests that jobs describe, and `jobqueue deliver`, which hands
due jobs to brokers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobqueue.cli import access
from jobqueue.errors import SettingsError
from jobqueue.sinks.webhook import signature

if TYPE_CHECKING:
    from jobqueue.sinks.webhook.worker import Options


_SECRET = "JOBQUEUE_CALLBACK_SECRET"  # noqa: S105 - its name
_SECRET_FILE = f"{_SECRET}_FILE"
_PATTERN = re.compile(r"[A-Za-z0-9._:*?-]+")


class _Cidr(click.ParamType[IPv4Network | IPv6Network]):
    """A network."""

    name = "cidr"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> IPv4Network | IPv6Network:
        try:
            return ip_network(value)
        except ValueError as error:
            self.fail(f"{value!r} is not a network such as 10.1.0.0/16: {error}", param, ctx)


class _HostPattern(click.ParamType[str]):
    """A pattern of host names."""

    name = "pattern"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _PATTERN.fullmatch(value):
            self.fail(f"{value!r} is not a name such as shop.example or *.shop.example, in ASCII (xn--…)", param, ctx)
        return str(value)


@click.command("callbacks", short_help="Do the HTTP requests that the bodies of jobs describe.")
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="NAME", help="take jobs of this topic; may be repeated"
)
@access.asking
@click.option("--concurrency", type=click.IntRange(1, 1000), default=50, show_default=True, help="jobs at a time")
@click.option(
    "--per-host", type=click.IntRange(1), default=10, show_default=True, help="requests at a time to one host"
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 3600),
    default=10,
    show_default=True,
    help="seconds for a request, redirects included",
)
@click.option(
    "--connect-timeout", type=click.FloatRange(0.1, 3600), default=3, show_default=True, help="seconds for a connection"
)
@click.option(
    "--allow-network",
    "networks",
    type=_Cidr(),
    multiple=True,
    metavar="CIDR",
    help="also allow calls into this network; may be repeated",
)
@click.option(
    "--allow-host",
    "hosts",
    type=_HostPattern(),
    multiple=True,
    metavar="PATTERN",
    help="call only hosts that match one of these, such as *.shop.example; may be repeated",
)
@click.option(
    "--allow-port",
    "ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    metavar="PORT",
    help="call only these ports [80, 443; those of --allow-network all]; may be repeated",
)
@click.option("--secret-file", metavar="FILE", help=f"file with the signing secrets, newest first; also {_SECRET_FILE}")
@click.option(
    "--topic-secret-file",
    "topic_files",
    type=(str, str),
    multiple=True,
    metavar="TOPIC FILE",
    help="file with the secrets that sign for this topic, instead of the others; may be repeated",
)
@click.option(
    "--log-format", type=click.Choice(["auto", "text", "json"]), default="auto", help="format of the logs [auto]"
)
def callbacks_command(
    secret_file: str | None, topic_files: tuple[tuple[str, str], ...], log_format: str, **given: Any
) -> None:
    """Do the HTTP requests that the bodies of these topics' jobs describe, until SIGTERM or Ctrl-C.

    A body is {"url", "method", "headers", "payload"}. Only public addresses and those of --allow-network are called.
    """
    keys, topic_keys = _keys(secret_file), _topic_keys(topic_files, given["topics"])
    url, files = access.asked(given)
    shown = access.shown(url, files)
    # Loading takes 0.3 s: `jobqueue --help` and a wrong option do not wait for it.
    from jobqueue import logs  # noqa: PLC0415
    from jobqueue.sinks.webhook.worker import Options  # noqa: PLC0415

    logs.set_up("info", log_format)
    # The client's events reach us through its hook; anything else that the client logs is a defect.
    logging.getLogger("jobqueue_client").setLevel(logging.ERROR)
    options = Options(
        url=url,
        topics=tuple(dict.fromkeys(given["topics"])),
        concurrency=given["concurrency"],
        per_host=given["per_host"],
        timeout_s=given["timeout"],
        connect_timeout_s=given["connect_timeout"],
        networks=given["networks"],
        ports=given["ports"],
        hosts=given["hosts"],
        keys=keys,
        topic_keys=topic_keys,
        access=files,
    )
    sys.exit(0 if _run(options, has_token=shown.token.authorization is not None) else 1)


def _run(options: Options, *, has_token: bool) -> bool:
    from jobqueue_client import Refused  # noqa: PLC0415 - as above

    from jobqueue.sinks.webhook.worker import work  # noqa: PLC0415

    try:
        return asyncio.run(work(options))
    except Refused as error:
        hint = access.advice(error.answer, has_token=has_token)
        raise click.ClickException(f"the service refused: {error}{hint}") from None
    except ValueError as error:  # of the client's options, only the URL can be wrong by now
        raise click.UsageError(str(error)) from None


def _keys(file: str | None) -> list[bytes]:
    """The signing keys from the file, else from the environment; none if neither is given. Raises UsageError."""
    if file is None:
        file = _one_of(_SECRET, _SECRET_FILE)
    if file is not None:
        return _keys_in(file)
    text = os.environ.get(_SECRET)
    return [] if text is None else _read(text, _SECRET)


def _one_of(secret: str, file: str) -> str | None:
    """The file that a variable names, if any. Raises UsageError if another variable holds the secret itself."""
    named = os.environ.get(file) or None
    if named and os.environ.get(secret):
        raise click.UsageError(f"{secret} and {file} exclude each other")
    return named


def _topic_keys(files: tuple[tuple[str, str], ...], topics: tuple[str, ...]) -> dict[str, list[bytes]]:
    """The signing keys of the topics that have their own. Raises UsageError."""
    keys: dict[str, list[bytes]] = {}
    for topic, file in files:
        if topic not in topics or topic in keys:
            why = "has two files" if topic in keys else "is not among the topics of --topic"
            raise click.UsageError(f"--topic-secret-file: {topic} {why}")
        keys[topic] = _keys_in(file)
    return keys


def _keys_in(file: str) -> list[bytes]:
    try:
        return _read(Path(file).read_text(), file)
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{file} is not text") from None


def _read(text: str, source: str) -> list[bytes]:
    try:
        return signature.secrets_of(text)
    except ValueError as error:
        raise click.UsageError(f"{source}: {error}") from None


DONE, LEFT, NOT_BEGUN = 0, 1, 2


@click.command("deliver", short_help="Hand due jobs to brokers, databases or a URL.")
@click.option("--config", "path", required=True, metavar="FILE", help="the service and the sinks (TOML)")
@click.option("--check", "checks", is_flag=True, help="connect to each, report what is there, and send nothing")
@click.option("--only", multiple=True, metavar="NAME", help="this sink of the file; may be repeated")
@click.option(
    "--log-format", type=click.Choice(["auto", "text", "json"]), default="auto", help="format of the logs [auto]"
)
def deliver_command(path: str, checks: bool, only: tuple[str, ...], log_format: str) -> None:
    """Hand the due jobs of topics to the sinks of a file, and finish each once it is confirmed.

    It runs until SIGTERM or Ctrl-C, beside as many others as you like. SIGHUP: read the file again. Exit code 1: not
    all that was taken was settled in time, or a sink was refused by the service; 2: it could not begin.
    """
    # Loading takes 0.3 s: `jobqueue --help` and a wrong option do not wait for it.
    from jobqueue import logs  # noqa: PLC0415
    from jobqueue.sinks.pump import pump  # noqa: PLC0415

    logs.set_up("error" if checks else "info", log_format)
    # Events reach us through hooks and errors. What these libraries also log may contain headers and bodies, or look
    # like a log of the service.
    for name in ("jobqueue_client", "buckets.redis", "nats", "aio_pika", "aiormq", "stompman", "aiokafka"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        work = pump.check(path, frozenset(only), click.echo) if checks else pump.deliver(path, frozenset(only))
        sys.exit(DONE if asyncio.run(work) else LEFT)
    except (SettingsError, ValueError) as error:
        click.echo(f"Error: {error}", err=True)
    except OSError as error:
        click.echo(f"Error: metrics_port: {error.strerror}", err=True)
    sys.exit(NOT_BEGUN)
