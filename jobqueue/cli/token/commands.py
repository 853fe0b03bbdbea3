"""The command group `jobqueue token` and its commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime
from itertools import chain
from typing import Any

import click

from jobqueue import settings
from jobqueue.access.tokens import ID_LENGTH, NEVER, PREFIX
from jobqueue.cli import access, options, times
from jobqueue.errors import SettingsError

_PLACE = ("config", "redis", "redis_file", "data", "namespace", "token_file", "ca_file", "cert_file", "key_file")


class _Id(click.ParamType[str]):
    """The id of a token. A whole token is refused, because it is in the shell's history once it is typed."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if str(value).startswith(PREFIX):
            self.fail(f"that is no id: give only the {ID_LENGTH} characters after {PREFIX}", param, ctx)
        return str(value)


class _Words(click.ParamType[list[str]]):
    """Words with commas between them."""

    name = "words"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        return [word.strip() for word in value.split(",") if word.strip()]


def _end(typed: str) -> float | str:
    """When a token ends: after a duration, at a time, or never. Raises ValueError, whose message is a sentence."""
    if typed == NEVER:
        return NEVER
    try:
        return time.time() + times.duration(typed)
    except ValueError:
        pass
    try:
        moment = times.moment(typed)
    except ValueError:
        raise ValueError(f"{typed!r} is not an end; give a duration such as 90d, a time, or {NEVER}") from None
    return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else moment


def _where(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where the tokens are."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="print JSON on a terminal too"),
        click.option("--namespace", metavar="NS", help="namespace of the service [jq]"),
        click.option("--data", metavar="DIR", help="data directory of the embedded Redis [jobqueue-data]"),
        click.option("--redis-file", metavar="FILE", help="file with the URL of the Redis, instead of --redis"),
        click.option("--redis", metavar="URL", help="the Redis of the service, if it is not the embedded one"),
        click.option("--config", metavar="FILE", help="settings file (TOML); `jobqueue config` prints one"),
        click.option("--url", help="ask the service that runs there, with a token of your own"),
    ):
        command = option(command)
    return access.accepted(command)


@click.group("token", short_help="Create, list, rotate and revoke tokens")
def token_group() -> None:
    """Create and look after the tokens of a service.

    It talks to the Redis of the service, so who may connect there needs no token. With --url it asks a running service,
    which wants a token with the right admin, in JOBQUEUE_TOKEN or --token-file.
    """


def _answers(url: str | None, where: dict[str, Any], *wishes: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers to some requests. Exits if one of them is refused."""
    from jobqueue.cli.token import asking  # noqa: PLC0415 - loading the service takes 0.3 s: help does not wait

    config, files = where.pop("config"), access.taken(where)
    others = any(value is not None for value in where.values())
    if url is not None and (config or others):
        raise click.UsageError("--url asks a running service, the other options name a Redis")
    file = access.opened(config) if url is None else None
    if not others:
        url, files = access.profile(file, files) or (url, files)
    try:
        ask_all = (
            asking.of_service(url, access.shown(url, files)) if url else asking.of_redis(settings.load(where, file))
        )
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    answers = asking.ask(ask_all, wishes)
    if isinstance(answers, int):
        sys.exit(answers)
    return answers


@token_group.command("create", short_help="Create a token and print it")
@click.argument("name")
@click.option(
    "--may",
    "rights",
    type=_Words(),
    multiple=True,
    required=True,
    metavar="RIGHT,...",
    help="produce, consume, look, bodies, operate, metrics, admin, actor, or names of commands",
)
@click.option("--topics", type=_Words(), multiple=True, metavar="PATTERN,...", help="the topics that it reaches [all]")
@click.option(
    "--expires", type=options.Typed("end", _end), metavar="WHEN", help="a duration, a time, or never; usually after 90d"
)
@click.option("--rate", type=int, metavar="N", help="commands a second [no limit]")
@click.option("--burst", type=int, metavar="N", help="commands at once [the rate, at least 10]")
@click.option("--bytes", type=int, metavar="N", help="bytes of bodies that it brings in, a second [no limit]")
@click.option("--waits", type=int, metavar="N", help="pops of it that wait at once [no limit]")
@click.option("--own-ids", is_flag=True, default=None, help="it adds only ids that begin with <topic>:")
@click.option("--certificate", metavar="NAME", help="the URI or DNS name of client certificates that stand for it")
@click.option("--record", metavar="FILE", help="append its record to this file of tokens instead of storing it")
@_where
def create_command(
    name: str,
    rights: tuple[list[str], ...],
    topics: tuple[list[str], ...],
    record: str | None,
    url: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Create a token. It is printed once, alone on standard output; only its digest is kept.

    For example: jobqueue token create orders --may produce --topics 'order-*' > orders.token
    """
    from jobqueue.cli.token import asking  # noqa: PLC0415 - as above

    where = {each: given.pop(each) for each in _PLACE}
    fields = {each: value for each, value in given.items() if value is not None}
    fields |= {"name": name, "rights": list(chain(*rights)), **({"topics": list(chain(*topics))} if topics else {})}
    if record is not None:
        if url is not None:
            raise click.UsageError("--record and --url exclude each other")
        sys.exit(asking.record_to(record, fields, as_json=as_json))
    (answer,) = _answers(url, where, {"action": "create", **fields})
    asking.show_issued(answer, as_json=as_json)


@token_group.command("list")
@_where
def list_command(url: str | None, as_json: bool, **where: Any) -> None:
    """List all tokens; those that ended, for a week."""
    from jobqueue.cli.token import asking  # noqa: PLC0415 - as above

    (answer,) = _answers(url, where, {"action": "list"})
    asking.show_all(answer, as_json=as_json)


@token_group.command("show")
@click.argument("id", type=_Id())
@_where
def show_command(id: str, url: str | None, as_json: bool, **where: Any) -> None:
    """Show what is kept of a token."""
    from jobqueue.cli.token import asking  # noqa: PLC0415 - as above

    (answer,) = _answers(url, where, {"action": "show", "id": id})
    asking.show_one(answer, as_json=as_json)


@token_group.command("revoke")
@click.argument("ids", type=_Id(), nargs=-1, required=True, metavar="ID...")
@_where
def revoke_command(ids: tuple[str, ...], url: str | None, as_json: bool, **where: Any) -> None:
    """End tokens now, in all instances; their waiting pops end, too."""
    from jobqueue.cli.token import asking  # noqa: PLC0415 - as above

    for answer in _answers(url, where, *({"action": "revoke", "id": each} for each in ids)):
        asking.show_one(answer, as_json=as_json)


@token_group.command("rotate")
@click.argument("id", type=_Id())
@click.option("--keep", type=options.DURATION, metavar="DURATION", help="for how long the old secret holds, too [0]")
@_where
def rotate_command(id: str, keep: float | None, url: str | None, as_json: bool, **where: Any) -> None:
    """Exchange the secret of a token. The new token is printed once, alone on standard output."""
    from jobqueue.cli.token import asking  # noqa: PLC0415 - as above

    wish = {"action": "rotate", "id": id} | ({} if keep is None else {"keep": keep})
    (answer,) = _answers(url, where, wish)
    asking.show_issued(answer, as_json=as_json)


@token_group.command("test")
@click.argument("id", type=_Id())
@click.argument("right", metavar="COMMAND")
@click.argument("topic", required=False)
@_where
def test_command(id: str, right: str, topic: str | None, url: str | None, as_json: bool, **where: Any) -> None:
    """Say whether a token may give a command, on a topic. Exit code 1: it may not, and why is said.

    COMMAND may be a right, too.
    """
    from jobqueue.cli.token import asking  # noqa: PLC0415 - as above

    wish = {"action": "test", "id": id, "right": right} | ({} if topic is None else {"topic": topic})
    (answer,) = _answers(url, where, wish)
    sys.exit(asking.show_test(answer, as_json=as_json))
