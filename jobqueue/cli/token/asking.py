"""`jobqueue token`: what it asks Redis or a service, and how it shows the answers.

Redis and a service give the same answers: requests to Redis go through the functions of the command `token`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from jobqueue_client.access import Access

from buckets import Pool
from buckets.access import Actions, Tokens
from buckets.errors import JobQueueError, NotFound, Unavailable, Unfit
from buckets.keys import Keys
from buckets.namespace import read_meta
from jobqueue import logs
from jobqueue.access import token_table
from jobqueue.access.grants import Grant, operator
from jobqueue.access.issuing import Issuing, new_record
from jobqueue.access.tokens import ADMIN, Record, Token, as_table
from jobqueue.cli import humanize, output
from jobqueue.cli.ask import DONE, REFUSED, UNREACHABLE
from jobqueue.cli.client import Client, Refusal, Unreachable
from jobqueue.cli.output import Output
from jobqueue.commands.actions import is_action, note
from jobqueue.commands.native import failed
from jobqueue.commands.table import Handover
from jobqueue.commands.tokens import carry_out
from jobqueue.errors import BadRequest, SettingsError
from jobqueue.redis_server.data_directory import running_at
from jobqueue.redis_server.opening import redis_at
from jobqueue.schema import checks, params
from jobqueue.schema.mistakes import misfit
from jobqueue.settings import Settings

Fields = dict[str, Any]
Ask = Callable[[Fields], Awaitable[Fields]]
"""Asks for one action, and returns the answer. Raises JobQueueError, Refusal, Unreachable."""


def of_service(url: str, access: Access) -> Callable[[Sequence[Fields]], Awaitable[list[Fields]]]:
    """Returns a function that asks a service. `access`: the token and the TLS context to use."""

    async def ask_all(wishes: Sequence[Fields]) -> list[Fields]:
        async with Client(url, access) as client:
            return [(await client.ask("token", **wish)).fields for wish in wishes]

    return ask_all


def of_redis(chosen: Settings) -> Callable[[Sequence[Fields]], Awaitable[list[Fields]]]:
    """Returns a function that asks Redis, with all rights: whoever may connect there may do everything."""

    async def ask_all(wishes: Sequence[Fields]) -> list[Fields]:
        commands = [_command(wish) for wish in wishes]
        redis = redis_at(chosen.redis or _embedded(chosen), chosen.redis_timeout_s)
        try:
            if commands[0].action != "create" and not await read_meta(redis, Keys(chosen.namespace, 0)):
                raise NotFound(f"this Redis has no namespace {chosen.namespace}")
            shards, buckets = chosen.numbers(redis.is_cluster)
            pool = await Pool.open(redis, chosen.namespace, shards=shards, buckets=buckets)
            filed = token_table.read(chosen.tokens_file) if chosen.tokens_file else []
            issuing = Issuing(Tokens(pool), lambda: filed)
            actions = Actions(pool)
            return [await _logged(issuing, actions, command) for command in commands]
        except Unavailable as error:
            raise Unavailable(redis.trouble or error.message) from None
        finally:
            await redis.close()

    return ask_all


def _embedded(chosen: Settings) -> str:
    try:
        return running_at(Path(chosen.data))
    except Unfit as error:
        raise Unfit(f"{error.message}; or ask a running service with --url URL and a token of yours") from None


def _command(wish: Fields) -> params.Token:
    """The command that a service would receive. Raises BadRequest."""
    try:
        command = msgspec.convert(wish | {"command": "token"}, params.Token)
    except msgspec.ValidationError as error:
        field = misfit(error).names[0]
        raise BadRequest(f"{field} {params.must_be(field, 'token')}", field=field) from None
    checks.check(command, 0)
    return command


async def _logged(issuing: Issuing, actions: Actions, command: params.Token) -> Fields:
    """Carry out a command, and return the answer. The command is noted in the log of actions if a service would note it
    there."""
    grant = _operator()
    if not is_action(command, ""):
        return await carry_out(issuing, command, grant)
    noted = await note(actions, [command], Handover([], grant))
    try:
        answer = await carry_out(issuing, command, grant)
    except JobQueueError as error:
        await noted.end([failed(error, command)])
        raise
    await noted.end([answer])
    return answer


def _operator() -> Grant:
    """A grant of all rights: whoever may connect to Redis may do everything."""
    return Grant(Record(id="", name=operator(), digest="", rights=(ADMIN,), created=0, changed=0), "")


def ask(ask_all: Callable[[Sequence[Fields]], Awaitable[list[Fields]]], wishes: Sequence[Fields]) -> list[Fields] | int:
    """Returns the answers, or an exit code after an error, which is printed."""
    logs.set_up("error", "text")
    try:
        return asyncio.run(ask_all(wishes))  # type: ignore[arg-type]  # it is a coroutine
    except Refusal as error:
        output.complain(str(error))
        return REFUSED
    except Unreachable as error:
        output.complain(str(error))
        return UNREACHABLE
    except Unavailable as error:
        output.complain(error.message)
        return UNREACHABLE
    except (JobQueueError, SettingsError) as error:
        output.complain(str(error))
        return REFUSED


def show_issued(answer: Fields, *, as_json: bool) -> None:
    """Show a new token. Only the token goes to standard output, so that it can be sent to a file or another program."""
    if as_json:
        click.echo(json.dumps(answer))
        return
    end = answer["expires"]
    until = "does not expire" if end is None else f"expires {humanize.when(end)}"
    output.remark(f"token {answer['id']} ({answer['name']}) {until}. It is shown this once:")
    click.echo(answer["token"])


def record_to(file: str, fields: Fields, *, as_json: bool) -> int:
    """Create a token, append its record to a file instead of storing it, and return the exit code."""
    token = Token.make()
    try:
        record = new_record(fields, token, operator(), time.time_ns() // 1000)
        others = token_table.read(file) if Path(file).exists() else []
        fault = token_table.fault_of([record], others)
        if fault:
            raise SettingsError(f"the record does not go into {file}: {fault}")
        with Path(file).open("a") as out:
            out.write(("\n" if others else "") + as_table(record))
    except (BadRequest, SettingsError) as error:
        output.complain(str(error))
        return REFUSED
    except OSError as error:
        output.complain(f"{file} cannot be written: {error.strerror}")
        return REFUSED
    show_issued({"id": record.id, "name": record.name, "expires": record.expires, "token": token.text}, as_json=as_json)
    return DONE


def show_all(answer: Fields, *, as_json: bool) -> None:
    """Show a table of tokens."""
    out = Output(as_json)
    if out.as_json:
        click.echo(json.dumps(answer))
    elif answer["tokens"]:
        out.table("tokens", answer["tokens"])
    else:
        out.say("there are no tokens; the first one: jobqueue token create NAME --may admin")


def show_one(answer: Fields, *, as_json: bool) -> None:
    """Show what is stored about a token."""
    out = Output(as_json)
    if out.as_json:
        click.echo(json.dumps(answer))
    else:
        out.table("answer", answer)


def show_test(answer: Fields, *, as_json: bool) -> int:
    """Show yes or no, and why, and return the exit code."""
    if Output(as_json).as_json:
        click.echo(json.dumps(answer))
    else:
        click.echo("yes" if answer["allowed"] else f"no: {humanize.clean(answer['why'])}")
    return DONE if answer["allowed"] else REFUSED
