"""The command line at a service that wants to know who asks: its token, its certificates, and what it says."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.clients.access.guarded import DONE, UNAUTHORIZED, Guarded, Reply, accepts
from tests.conformance.tokens import NEWER_TOKEN, TOKEN, WRONG_TOKEN
from tests.kit.shell import Shell

URL = "http://127.0.0.1:1"


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    return str(tmp_path / "token")


async def test_the_token_is_that_of_the_environment_or_of_a_file(file: str) -> None:
    with Guarded(accepts(TOKEN)).serving() as server:
        assert (await Shell(server.url, JOBQUEUE_TOKEN=TOKEN).run("stats")).code == 0
        assert (await Shell(server.url, JOBQUEUE_TOKEN_FILE=file, JOBQUEUE_TOKEN=NEWER_TOKEN).run("stats")).code == 0
        assert (await Shell(server.url).run("stats", "--token-file", file)).code == 0
        assert server.shown == [f"Bearer {TOKEN}"] * 3


async def test_a_file_says_which_service_is_asked_and_what_it_is_shown(file: str, tmp_path: Path) -> None:
    profile = tmp_path / "shop.toml"
    with Guarded(accepts(TOKEN)).serving() as server, Guarded(accepts(TOKEN)).serving() as other:
        server.page = other.page = lambda authorization: (200, {"ready": True})
        profile.write_text(f'url = "{server.url}"\ntoken_file = "{file}"\n')
        elsewhere, nowhere = Shell(URL), Shell(other.url, JOBQUEUE_CONFIG=str(profile))
        for command in ("stats", "check", "doctor", "token list", "operation list", "explain j"):
            del server.shown[:]
            await elsewhere.run(*command.split(), "--config", str(profile))
            assert set(server.shown) == {f"Bearer {TOKEN}"}, command
        # JOBQUEUE_URL is asked rather than the file of JOBQUEUE_CONFIG, whose token it is not shown.
        assert (await nowhere.run("stats")).code == 1
        assert other.shown == [None]
    ran = await elsewhere.run("stats", "--url", URL, "--config", str(profile))
    assert (ran.code, "--url and --config exclude each other" in ran.err) == (2, True)


async def test_a_file_that_names_a_service_is_refused_with_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    for text, said in (
        ('url = "http://h"\ntokenfile = "x"', "tokenfile is unknown beside url; did you mean token_file?"),
        ("url = 1", "url must be text"),
        ("url =", "is not TOML"),
        (
            'url = "https://${SHOP_HOST}:8000"',
            "wrong.toml: url: ${SHOP_HOST} is empty: set SHOP_HOST or SHOP_HOST_FILE",
        ),
        ("prot = 1", "the file"),
        ("port = 0", "use --url"),
    ):
        file.write_text(text)
        ran = await Shell(URL).run("stats", "--config", str(file))
        assert (ran.code, said in ran.err) == (2, True), (text, ran)


async def test_the_settings_of_a_service_say_where_it_listens(tmp_path: Path) -> None:
    with Guarded(lambda authorization, asked: DONE).serving() as server:
        file = tmp_path / "jobqueue.toml"
        file.write_text(f"port = {server.url.rpartition(':')[2]}\n")
        assert (await Shell(URL).run("stats", "--config", str(file))).code == 0


async def test_a_file_that_names_a_service_is_filled_from_the_environment(file: str, tmp_path: Path) -> None:
    profile = tmp_path / "sinks.toml"
    profile.write_text(
        'url = "http://${SHOP_HOST}:${SHOP_PORT}"\ntoken_file = "${SHOP_FOLDER}/token"\n'
        '[sinks.a]\nurl = "amqp://${ONLY_DELIVER_NEEDS_IT}@h"\n'
    )
    with Guarded(accepts(TOKEN)).serving() as server:
        (tmp_path / "port").write_text(f"{server.url.rpartition(':')[2]}\n")
        shell = Shell(
            URL, SHOP_HOST="127.0.0.1", SHOP_PORT_FILE=str(tmp_path / "port"), SHOP_FOLDER=str(Path(file).parent)
        )
        ran = await shell.run("stats", "--config", str(profile))
        assert (ran.code, server.shown) == (0, [f"Bearer {TOKEN}"]), ran


async def test_a_file_may_be_a_pipe_which_can_be_read_once() -> None:
    with Guarded(lambda authorization, asked: DONE).serving() as server:
        text = f"port = {server.url.rpartition(':')[2]}"
        ran = await Shell(URL).script(f"echo '{text}' | jobqueue stats --config /dev/stdin")
        assert (ran.code, len(server.seen)) == (0, 1), ran
    for command in ("check", "doctor"):
        ran = await Shell(URL).script(f"echo 'port = 1' | jobqueue {command} --config /dev/stdin")
        assert "settings: port set" in ran.out and f"none is listening at {URL}" in ran.out, ran


async def test_no_flag_takes_a_token() -> None:
    ran = await Shell(URL).run("stats", "--token", TOKEN)
    assert ran.code == 2
    assert "No such option" in ran.err
    assert "--token-file" in (await Shell(URL).run("stats", "--help")).out


async def test_a_refused_token_is_told_with_what_to_do(file: str) -> None:
    with Guarded(lambda authorization, asked: UNAUTHORIZED).serving() as server:
        ran = await Shell(server.url).run("stats")
        assert (ran.code, ran.json["code"]) == (1, "UNAUTHORIZED")
        told = "stats: a valid token is needed (UNAUTHORIZED); set JOBQUEUE_TOKEN, or use --token-file"
        assert ran.err == f"Error: {told}\n"
        ran = await Shell(server.url, JOBQUEUE_TOKEN_FILE=file).run("stats")
        assert ran.code == 1
        assert "unknown, expired or revoked" in ran.err
        assert TOKEN not in ran.err + ran.out


async def test_what_the_token_may_not_is_told_with_what_to_do() -> None:
    answer = {"success": False, "id": None, "code": "FORBIDDEN", "error": "the token lacks the right look"}
    with Guarded(lambda authorization, asked: (403, {**answer, "right": "look"})).serving() as server:
        ran = await Shell(server.url, JOBQUEUE_TOKEN=TOKEN).run("stats")
    assert ran.code == 1
    assert "(FORBIDDEN); another token is given by JOBQUEUE_TOKEN or --token-file" in ran.err


async def test_a_token_with_a_typing_error_is_a_wrong_use_and_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(WRONG_TOKEN)
    for shell, name in (
        (Shell(URL, JOBQUEUE_TOKEN=WRONG_TOKEN), "JOBQUEUE_TOKEN"),
        (Shell(URL, JOBQUEUE_TOKEN_FILE=str(file)), "token_file"),
        (Shell(URL, JOBQUEUE_TOKEN_FILE=str(tmp_path / "none")), "token_file"),
    ):
        for command in (["stats"], ["callbacks", "--topic", "t"], ["check"]):
            ran = await shell.run(*command)
            assert (ran.code, name in ran.err) == (2, True), ran
            assert WRONG_TOKEN not in ran.err


async def test_a_watch_goes_on_with_the_token_that_its_file_has_by_now(file: str, tmp_path: Path) -> None:
    seen = asyncio.Event()
    loop = asyncio.get_running_loop()

    def reply(authorization: str | None, asked: Any) -> Reply:
        if authorization == f"Bearer {NEWER_TOKEN}":
            loop.call_soon_threadsafe(seen.set)
        elif len(server.seen) > 1:
            (tmp_path / "token").write_text(NEWER_TOKEN)
            return UNAUTHORIZED
        return DONE

    with Guarded(reply).serving() as server:
        async with Shell(server.url).terminal("stats", "--json", "--watch=0.1", "--token-file", file) as terminal:
            await seen.wait()
            assert "Error" not in terminal.text
            terminal.interrupt()
            assert await terminal.end() == 0


async def test_callbacks_ends_when_its_topic_is_not_its_tokens(file: str) -> None:
    answer = {"success": False, "code": "FORBIDDEN", "error": "the token does not reach the topic t", "topic": "t"}

    def reply(authorization: str | None, asked: Any) -> Reply:
        return (403, answer) if authorization == f"Bearer {TOKEN}" else UNAUTHORIZED

    with Guarded(reply).serving() as server:
        ran = await Shell(server.url).run("callbacks", "--topic", "t", "--token-file", file)
    assert ran.code == 1
    assert "does not reach the topic t; another token is given by" in ran.err
    assert TOKEN not in ran.err


async def test_check_shows_the_token_and_says_why_a_service_is_not_ready(file: str) -> None:
    with Guarded(accepts(TOKEN)).serving() as server:
        server.page = lambda authorization: (200, {"ready": True})
        ran = await Shell(server.url).run("check", "--token-file", file)
        assert f"ok   service: ready at {server.url}" in ran.out
        assert set(server.shown) == {f"Bearer {TOKEN}"}
        server.page = lambda authorization: (503, {"ready": False, "checks": {"redis": False, "tokens": True}})
        ran = await Shell(server.url).run("check", "--token-file", file)
        assert (ran.code, "is not ready; failed checks: redis\n" in ran.out) == (1, True)
        server.page = lambda authorization: (503, {"ready": False})
        ran = await Shell(server.url).run("check")
        assert (ran.code, "a token with the right look shows which" in ran.out) == (1, True)


async def test_a_service_with_a_private_authority_is_trusted_by_the_authoritys_file(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("ops").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    files = {"JOBQUEUE_CA_FILE": str(tmp_path / "ca.pem"), "JOBQUEUE_CERT_FILE": str(tmp_path / "own.pem")}
    with Guarded(lambda authorization, asked: DONE, context).serving() as server:
        server.page = lambda authorization: (200, {"ready": True})
        assert (await Shell(server.url, **files).run("stats")).code == 0
        assert "ok   service: ready" in (await Shell(server.url, **files).run("check")).out
        ran = await Shell(server.url).run("stats")
        assert (ran.code, f"{server.url}: the certificate is not trusted (self-signed" in ran.err) == (3, True), ran.err
        assert ran.err.rstrip().endswith("): --ca-file names the authority to trust")
        ran = await Shell(server.url).run("check")
        assert f"{server.url}: the certificate is not trusted (" in ran.out and "): --ca-file names" in ran.out
        plain = server.url.replace("https:", "http:")
        for command in ("stats", "check"):
            ran = await Shell(plain).run(command)
            assert f"{plain}: this port speaks TLS: use https://" in ran.out + ran.err
        assert [each.commands["command"] for each in server.seen if each.commands] == ["stats", "health", "topics"]
    with Guarded(lambda authorization, asked: DONE).serving() as server:
        secure = server.url.replace("http:", "https:")
        for command in ("stats", "check"):
            ran = await Shell(secure).run(command)
            assert f"{secure}: this port does not speak TLS: use http://" in ran.out + ran.err
    ran = await Shell(URL, **files).run("stats")
    assert (ran.code, "ca_file is for https URLs" in ran.err) == (2, True)
