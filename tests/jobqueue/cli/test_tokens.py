"""`jobqueue token`: as it is typed, over Redis and over a service that asks for tokens."""

from __future__ import annotations

import json
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from buckets.redis.client import Redis
from jobqueue.access.tokens import Token
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until


class Desk:
    """`jobqueue token …` on the Redis of the tests."""

    def __init__(self, server: RedisServer, *where: str) -> None:
        self.where = where or ("--redis", server.url)
        self.shell = Shell("http://127.0.0.1:1")

    async def create(self, *arguments: str) -> Token:
        ran = await self.shell.run("token", "create", *arguments, *self.where)
        assert ran.code == 0, ran.err
        token = Token.read(ran.out.removesuffix("\n"))
        assert token, ran.out
        assert token.id in ran.err and token.text not in ran.err
        return token


@pytest.fixture
def desk(redis_server: RedisServer, redis: Redis) -> Desk:
    return Desk(redis_server)


@pytest.fixture
async def guarded(redis_server: RedisServer, redis: Redis, tmp_path: Path) -> AsyncIterator[ServiceProcess]:
    """A service that asks for tokens."""
    config = tmp_path / "jobqueue.toml"
    config.write_text('access = "tokens"\n')
    async with ServiceProcess("--redis", redis_server.url, "--config", str(config)) as service:
        yield service


async def test_a_token_is_created_shown_rotated_and_revoked(desk: Desk) -> None:
    token = await desk.create("orders", "--may", "produce,look", "--topics", "order-*", "--rate", "5")
    shown = (await desk.shell.run("token", "show", token.id, *desk.where)).json
    assert (shown["name"], shown["rights"], shown["topics"], shown["burst"], shown["state"]) == (
        *("orders", ["produce", "look"], ["order-*"], 10, "live"),
    )
    assert "@" in shown["created_by"]
    ran = await desk.shell.run("token", "rotate", token.id, "--keep", "24h", *desk.where)
    later = Token.read(ran.out.strip())
    assert later and later.id == token.id and later.text != token.text
    listed = (await desk.shell.run("token", "list", *desk.where)).json["tokens"]
    assert [each["id"] for each in listed] == [token.id]
    assert listed[0]["old_until"] > listed[0]["created"] + 86_000
    assert (await desk.shell.run("token", "revoke", token.id, *desk.where)).json["state"] == "revoked"
    assert (await desk.shell.run("token", "revoke", "00000000", *desk.where)).code == 1
    assert await desk.shell.shown("token", "list", *desk.where) != ""


async def test_a_test_says_yes_or_no_by_its_exit_code_too(desk: Desk) -> None:
    token = await desk.create("orders", "--may", "produce", "--topics", "order-*", "--expires", "never")
    test = ("token", "test", token.id)
    assert await desk.shell.shown(*test, "add", "order-1", *desk.where) == "yes\n"
    ran = await desk.shell.run(*test, "add", "mail", *desk.where)
    assert (ran.code, ran.json["why"]) == (1, "the token does not reach the topic mail")
    async with desk.shell.terminal(*test, "pop", *desk.where) as terminal:
        assert (await terminal.end(), terminal.text) == (1, "no: the token lacks the right consume\n")
    assert (await desk.shell.run(*test, "fly", *desk.where)).code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("create", "a"), 2, "Missing option '--may'"),
        (("create", "a b", "--may", "look"), 1, "name must be 1 to 40 characters"),
        (("create", "a", "--may", "lok"), 1, "did you mean look?"),
        (("create", "a", "--may", "look", "--expires", "soon"), 2, "'soon' is not an end"),
        (("create", "a", "--may", "look", "--rate", "0"), 1, "rate must be an integer from 1"),
        (("create", "a", "--may", "look", "--record", "x", "--url", "http://x"), 2, "exclude each other"),
        (("show", "x"), 1, "id must be the 8 characters after jqt_"),
        (("show", "jqt_orders01Zz9"), 2, "give only the 8 characters after jqt_"),
        (("list", "--url", "http://127.0.0.1:1", "--namespace", "x"), 2, "--url asks a running service"),
        (("list", "--url", "http://127.0.0.1:1"), 3, "no service listens"),
        (("list", "--redis", "redis://127.0.0.1:1"), 3, "127.0.0.1:1"),
        (("list", "--namespace", "typo"), 1, "no namespace typo"),
    ],
)
async def test_a_wrong_word_is_told_in_words(desk: Desk, arguments: tuple[str, ...], code: int, told: str) -> None:
    where = () if {"--url", "--redis"} & set(arguments) else desk.where
    ran = await desk.shell.run("token", *arguments, *where)
    assert (ran.code, ran.out) == (code, ""), ran
    assert told in ran.err


async def test_where_no_redis_runs_the_ways_to_the_one_that_does_are_named(tmp_path: Path) -> None:
    ran = await Shell("").run("token", "create", "orders", "--may", "produce", "--data", str(tmp_path / "data"))
    assert ran.code == 1
    assert f"no embedded Redis runs on the data directory {tmp_path}/data" in ran.err
    assert all(option in ran.err for option in ("--config", "--data", "--redis", "--url"))


async def test_a_record_goes_into_a_file_and_only_its_token_to_a_pipe(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    desk.where = ("--record", str(file))
    tokens = [await desk.create(name, "--may", "consume", "--expires", "90d") for name in ("a", "b")]
    tables = tomllib.loads(file.read_text())["token"]
    assert [(each["id"], each["name"], each["digest"]) for each in tables] == [
        (token.id, name, token.digest) for token, name in zip(tokens, ("a", "b"), strict=True)
    ]
    ran = await desk.shell.run("token", "create", "a", "--may", "look", *desk.where)
    assert (ran.code, ran.out) == (1, "")
    assert "there twice" in ran.err
    assert len(tomllib.loads(file.read_text())["token"]) == 2


async def test_a_service_issues_tokens_to_those_who_may(desk: Desk, guarded: ServiceProcess) -> None:
    admin = await desk.create("admin", "--may", "admin", "--topics", "order-*")
    at = ("--url", guarded.url)
    as_admin = Shell(guarded.url, JOBQUEUE_TOKEN=admin.text)

    async def is_known() -> bool:
        return (await as_admin.run("whoami")).code == 0

    await until(is_known)
    whoami = (await as_admin.run("whoami")).json
    assert (whoami["open"], whoami["name"], whoami["topics"]) == (False, "admin", ["order-*"])
    ran = await as_admin.run("token", "create", "mail", "--may", "look", "--topics", "mail", *at)
    assert (ran.code, ran.out) == (1, "")
    assert "does not reach" in ran.err and "FORBIDDEN" in ran.err
    ran = await as_admin.run(
        "token", "create", "sub", "--may", "produce", "--topics", "order-1", "--expires", "1h", *at
    )
    sub = Token.read(ran.out.strip())
    assert sub
    as_sub = Shell(guarded.url, JOBQUEUE_TOKEN=sub.text)

    async def may_add() -> bool:
        return (await as_sub.run("add", "order-1", "1")).code == 0

    await until(may_add)
    ran = await as_sub.run("token", "list", *at)
    assert (ran.code, "FORBIDDEN" in ran.err) == (1, True)
    listed = (await as_admin.run("token", "list", *at)).json["tokens"]
    assert {each["name"]: each["created_by"] for each in listed}["sub"] == "admin"
    ran = await as_admin.run("token", "create", "late", "--may", "look", "--topics", "order-1", "--json", *at)
    assert ran.json["expires"] == whoami["expires"]  # not 90 days from now, when the giver's own token has ended
    assert (await as_admin.run("token", "revoke", sub.id, *at)).json["state"] == "revoked"

    async def is_out() -> bool:
        return "UNAUTHORIZED" in (await as_sub.run("whoami")).err

    await until(is_out)


async def test_a_token_may_stand_in_a_file_and_a_mistyped_one_is_not_sent(
    desk: Desk, guarded: ServiceProcess, tmp_path: Path
) -> None:
    token = await desk.create("look", "--may", "look")
    file = tmp_path / "token"
    file.write_text(f"{token.text}\n")

    async def is_known() -> bool:
        return (await Shell(guarded.url, JOBQUEUE_TOKEN_FILE=str(file)).run("stats")).code == 0

    await until(is_known)
    ran = await Shell(guarded.url, JOBQUEUE_TOKEN=token.text[:-1]).run("stats")
    assert (ran.code, "typing error" in ran.err, token.text[:-1] in ran.err) == (2, True, False)
    ran = await Shell(guarded.url).run("stats")
    assert (ran.code, "UNAUTHORIZED" in ran.err) == (1, True)


async def test_a_whole_token_in_the_place_of_an_id_is_not_repeated(desk: Desk, guarded: ServiceProcess) -> None:
    admin = await desk.create("admin", "--may", "admin")
    async with Client(guarded.url, admin.text) as client:

        async def is_known() -> bool:
            return bool((await client.ask("whoami"))["success"])

        await until(is_known)
        answer = await client.ask("token", action="show", id=admin.text)
    assert answer["code"] == "BAD_FIELD"
    assert admin.text not in json.dumps(answer)
