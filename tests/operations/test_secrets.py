"""Secrets are nowhere but where they belong: everything is started with marked ones and made to fail in many ways, then
its logs, answers, metrics, processes and data are searched for them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from jobqueue_client import AsyncClient

from buckets.access import Tokens
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.redis.url import read_url
from jobqueue import settings
from jobqueue.access.issuing import Issuing, new_record
from jobqueue.access.tokens import Token, as_table
from jobqueue.sinks.webhook.worker import Options
from tests.acceptance.receiver import Receiver, status
from tests.acceptance.test_callbacks import Callbacks
from tests.kit import forked
from tests.kit.ports import free_port, free_ports
from tests.kit.redis_node import Access, RedisNode, Tls
from tests.kit.redis_server import binary, knows_tls
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

_DIALECTS = ("lmstfy", "camellia", "mykit", "queue_server")
_PATHS = ("/command", "/metrics", "/readyz", "/nowhere", "/api/ns/queue", "/push", "/openapi.json")
_ADD = b'{"command":"add","topic":"t","id":"a","body":1}'
_WRONG = "Xw7wrongtokenXw7"  # what a client sends by mistake is a secret too, of somewhere else


def _webhook_secret(mark: bytes) -> str:
    return f"whsec_{base64.b64encode(mark * 4).decode()}"


class Marked:
    """Secrets, each with a mark that stands nowhere else, and a Redis and files that know them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.access = Access("jobqueue", "Xm1redis/word+Xm1")
        self.tokens = {name: f"Xm2{name}tokenXm2" for name in _DIALECTS}
        self.issued: dict[str, str] = {}
        self.webhook, self.of_topic = _webhook_secret(b"Xm3Xm3Xm3"), _webhook_secret(b"Xm4Xm4Xm4")
        self.tls = Tls(folder / "tls") if knows_tls(binary()) else None
        quoted = Access(self.access.user, self.access.password.replace("/", "%2F"))
        lines = ["save ''", "rdbcompression no"]
        self.redis = RedisNode(folder / "redis", free_port(), lines, self.access, tls=self.tls)
        self.url = self.redis.url.replace(self.access.in_url, quoted.in_url)
        self.url_file = self.file("redis-url", self.url)

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(f"{text}\n")
        path.chmod(0o600)
        return path

    async def issue(self) -> dict[str, str]:
        """Give out tokens, by what is the matter with them; most are kept in Redis, one in the file of tokens."""
        redis = Redis(self.url)
        issuing = Issuing(Tokens(await Pool.open(redis)))
        made = {
            name: await issuing.create({"name": name, "rights": ["add"]}, "test") for name in ("narrow", "gone", "old")
        }
        made["all"] = await issuing.create({"name": "all", "rights": ["admin"]}, "test")
        await issuing.revoke(made["gone"].record.id)
        made["new"] = await issuing.rotate(made["old"].record.id, 60)
        tokens = {name: each.token.text for name, each in made.items()}
        filed = Token.make()
        self.file(
            "tokens.toml",
            as_table(new_record({"name": "filed", "rights": ["look"]}, filed, "", time.time_ns() // 1000)),
        )
        tokens |= {"filed": filed.text, "unknown": Token.make().text}
        self.issued = tokens
        await redis.close()
        return tokens

    def config(self, ports: dict[str, int], **more: str) -> Path:
        """A settings file; half of the tokens stand in it, the others in files."""
        lines = ['log_level = "debug"', f'redis_file = "{self.url_file}"', "redis_timeout_s = 1", *more.values()]
        for place, (name, token) in enumerate(self.tokens.items()):
            file = self.file(f"token-{name}", token)
            given = f'token = "{token}"' if place % 2 else f'token_file = "{file}"'
            lines += [f"[protocols.{name}]", f"port = {ports[name]}", given]
        return self.file("jobqueue.toml", "\n".join(lines))

    def found(self, *texts: str | bytes) -> set[str]:
        """The marks in texts, and pieces of the TLS key."""
        data = b"\n".join(text.encode() if isinstance(text, str) else text for text in texts)
        marks = {"Xm1", "Xm2", "Xm3Xm3", "Xm4Xm4", "Xw7"}
        marks |= {secret.removeprefix("whsec_")[:12] for secret in (self.webhook, self.of_topic)}
        marks |= {part for token in self.issued.values() for part in (token[12:30], token[30:48])}
        if self.tls:
            marks |= set(self.tls.client[1].read_text().splitlines()[1:-1])
        return {mark for mark in marks if mark.encode() in data}


@asynccontextmanager
async def marked(folder: Path) -> AsyncIterator[Marked]:
    secrets = Marked(folder)
    await secrets.redis.start()
    try:
        yield secrets
    finally:
        secrets.redis.kill()


def test_a_mark_is_found_in_whatever_form(tmp_path: Path) -> None:
    secrets = Marked(tmp_path)
    assert secrets.found(secrets.url, secrets.webhook, *secrets.tokens.values()) >= {"Xm1", "Xm2"}
    assert len(secrets.found(secrets.webhook, b"Xm4Xm4Xm4")) == 2
    assert not secrets.found("nothing of it")
    if secrets.tls:
        assert len(secrets.found(secrets.tls.client[1].read_bytes())) > 1


async def ran(*command: str, **variables: str) -> str:
    """The output of a command of ours."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}
    done = await forked.ran(command, own | variables)
    return done.out + done.err


def processes_of(pid: int) -> list[int]:
    """A process and those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in processes_of(int(child)))]


def writes_no_core_file(pid: int) -> bool:
    limits = Path(f"/proc/{pid}/limits").read_text()
    return re.search(r"^Max core file size +0 ", limits, re.M) is not None


def shown_of(pid: int) -> bytes:
    """What other users of the machine, and its owner's processes, see of a process."""
    return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))


async def asked(session: aiohttp.ClientSession, method: str, url: str, **given: Any) -> str:
    """An answer with its head; a broken connection is one too."""
    try:
        async with session.request(method, url, timeout=aiohttp.ClientTimeout(10), **given) as response:
            return f"{response.status} {response.headers} {await response.text()}"
    except (aiohttp.ClientError, TimeoutError) as error:
        return str(type(error))


async def by_tcp(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    writer.write_eof()
    try:
        async with asyncio.timeout(5):
            return await reader.read()
    except (TimeoutError, ConnectionError):
        return b""
    finally:
        writer.close()


async def provoked(url: str, ports: dict[str, int], tokens: Iterable[str]) -> list[str | bytes]:
    """Answers to requests with tokens of all kinds, at every port and in every place where one may stand."""
    answers: list[str | bytes] = []
    async with aiohttp.ClientSession() as session:
        for token in (_WRONG, *tokens, f"jqt_{_WRONG}", "Xw7\u00e9", "Xw7" * 3000):
            for headers in ({"Authorization": f"Bearer {token}"}, {"Authorization": token}, {"X-Token": token}):
                for at in (url, *(f"http://127.0.0.1:{ports[name]}" for name in _DIALECTS[:3])):
                    for path in _PATHS:
                        answers.append(await asked(session, "GET", at + path, headers=headers))
                    answers.append(await asked(session, "POST", f"{at}/command", headers=headers, data=_ADD))
                    answers.append(await asked(session, "PUT", f"{at}/api/ns/queue", headers=headers, data=_ADD))
            if len(token) < 100:
                for name in _DIALECTS[:3]:
                    at = f"http://127.0.0.1:{ports[name]}"
                    for path in (f"/api/ns/q?token={token}", f"/~{token}/push", f"/~{token}/im", f"/x?token={token}"):
                        answers.append(await asked(session, "PUT", at + path, data=b"1"))
        for data in (b'{"cmd":"add","token":"%s"}', b'{"token":"%s'):
            answers.append(await by_tcp(ports["queue_server"], data % _WRONG.encode() + b"\n"))
    return answers


async def _holds(redis: RedisNode, key: str) -> bool:
    return bool(await redis.ask("EXISTS", key))


async def test_a_service_shows_its_secrets_to_nobody_while_everything_goes_wrong(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    ports = dict(zip(_DIALECTS, free_ports(len(_DIALECTS)), strict=True))
    async with marked(tmp_path) as secrets:
        tokens = await secrets.issue()
        config = secrets.config(ports, access='access = "tokens"', file=f'tokens_file = "{tmp_path}/tokens.toml"')
        async with ServiceProcess("--config", str(config), log=log, workers=2) as service:
            assert service.process
            pids = processes_of(service.process.pid)
            assert len(pids) == 3
            assert all(writes_no_core_file(pid) for pid in pids)
            answers = await provoked(service.url, ports, (*secrets.tokens.values(), *tokens.values()))
            shown = [shown_of(pid) for pid in pids]
            shown.append((await ran("check", "--config", str(config))).encode())
            shown.append((await ran("fsck", "--redis-file", str(secrets.url_file))).encode())
            shown.append((await ran("fsck", JOBQUEUE_REDIS=secrets.url.replace("Xm1", "Xm1no"))).encode())
            other = secrets.file("bad-url", secrets.url.replace("@", "@h?ssl_nonsense=Xm1&"))
            shown.append((await ran("move", "--from-file", str(secrets.url_file), "--to-file", str(other))).encode())
            shown.append((await ran("check", "--redis-file", str(other))).encode())

            async with Client(service.url, tokens["all"]) as client:
                for command in ("settings", "health", "instances"):
                    told = await client.ask(command)
                    assert told["success"], told
                    shown.append(json.dumps(told).encode())

            config.write_text(config.read_text().replace("Xm2", "Xm2" * 200))
            service.signal(signal.SIGHUP)
            await until(lambda: "settings.refused" in log.read_text())
            os.kill(pids[1], signal.SIGKILL)
            await until(lambda: log.read_text().count("worker.started") == 3)
            secrets.redis.kill()
            async with aiohttp.ClientSession() as session:
                bearer = {"Authorization": f"Bearer {tokens['all']}"}
                shown.append(
                    (await asked(session, "POST", f"{service.url}/command", data=_ADD, headers=bearer)).encode()
                )
            await secrets.redis.start()
            await until(partial(_holds, secrets.redis, "{jq:0}:tokens"))  # written back by those who knew them
            await secrets.redis.ask("SAVE")
            dump = (tmp_path / "redis" / "dump.rdb").read_bytes()
    text = log.read_text()
    for event in ("worker.ended", "access.refused"):
        assert event in text
    assert "redis.lost" in text
    assert not secrets.found(text), text
    assert hashlib.sha256(tokens["all"].encode()).hexdigest().encode() in dump  # what is kept of a token
    assert not secrets.found(dump, *shown)
    for answer in answers:
        assert not secrets.found(answer), answer


async def test_a_service_that_cannot_start_shows_no_secret(tmp_path: Path) -> None:
    secrets = Marked(tmp_path)  # no Redis runs
    ports = dict(zip(_DIALECTS, free_ports(len(_DIALECTS)), strict=True))
    config = str(secrets.config(ports))
    said = [
        await ran("serve", "--config", config),
        await ran("serve", "--redis-file", str(secrets.file("twice", f"{secrets.url}\n{secrets.url}"))),
        await ran("serve", "--redis-file", str(secrets.file("no-url", secrets.url.replace("://", ":")))),
        await ran("serve", "--redis-file", str(secrets.file("no-port", secrets.url.replace("%2F", "/")))),
        await ran("serve", JOBQUEUE_REDIS=secrets.url, JOBQUEUE_REDIS_FILE=str(secrets.url_file)),
        await ran("serve", JOBQUEUE_REDIS=f"{secrets.url}&ssl_nonsense=Xm1"),
        await ran("check", "--redis", secrets.url, "--redis-file", str(secrets.url_file)),
    ]
    assert all("Error" in each or "bad " in each for each in said), said
    assert not secrets.found(*said), said


async def test_the_worker_of_callbacks_shows_its_secrets_to_nobody(tmp_path: Path) -> None:
    log = tmp_path / "callbacks.log"
    async with marked(tmp_path) as secrets, Receiver() as shop:
        tokens = await secrets.issue()
        given = {"all": secrets.webhook, "own": secrets.of_topic, "token": tokens["all"]}
        files = {name: str(secrets.file(name, secret)) for name, secret in given.items()}
        flags = ("--allow-network=127.0.0.0/8", "--topic", "u", "--topic-secret-file", "u", files["own"])
        variables = {"JOBQUEUE_CALLBACK_SECRET_FILE": files["all"], "JOBQUEUE_TOKEN_FILE": files["token"]}
        config = secrets.file("access.toml", f'access = "tokens"\nredis_file = "{secrets.url_file}"')
        async with (
            ServiceProcess("--config", str(config)) as service,
            AsyncClient(service.url, token=tokens["all"]) as client,
            Callbacks(Client(service.url), log, *flags, **variables) as worker,
        ):
            for topic, path, answer in (("t", "/ok", 200), ("u", "/bad", 500), ("u", "/gone", 410)):
                body = {"url": shop.at(path, status(answer)), "headers": {"Authorization": "Xm2"}, "payload": "Xw7"}
                await client.add(topic, body, id=path[1:], backoff=[600])
            await client.add("u", {"url": "http://a:Xw7@h/", "headers": {"Xw7": "é"}}, id="odd")
            await until(lambda: len(shop.requests) == 3 and log.read_text().count("callback.buried") == 2)
            shown = shown_of(worker.process.pid)
            told = [str((await client.get(name)).get("reason")) for name in ("bad", "gone", "odd")]
            own = AsyncClient(service.url, token=tokens["all"])
            assert not secrets.found(repr(client), repr(vars(own)), str(vars(own)["_options"]))
        assert not secrets.found(shown, log.read_text(), *told)
        assert not secrets.found(*(str(request.headers) for request in shop.requests)) - {"Xm2"}


async def test_a_worker_of_callbacks_that_may_not_start_shows_no_secret(tmp_path: Path) -> None:
    async with marked(tmp_path) as secrets:
        tokens = await secrets.issue()
        config = secrets.file("access.toml", f'access = "tokens"\nredis_file = "{secrets.url_file}"')
        async with ServiceProcess("--config", str(config)) as service:
            call = ("callbacks", "--topic", "t", "--url", service.url)
            said = [
                await ran(*call, JOBQUEUE_TOKEN=tokens["all"] + "x"),
                await ran(*call, JOBQUEUE_TOKEN=tokens["all"], JOBQUEUE_TOKEN_FILE=config.name),
                await ran(*call, JOBQUEUE_TOKEN_FILE=str(secrets.file("cut", tokens["all"][:-1]))),
                await ran(*call, JOBQUEUE_CALLBACK_SECRET=secrets.webhook[:20]),
            ]
    assert all("Error" in each for each in said), said
    assert not secrets.found(*said), said


def test_what_holds_secrets_does_not_show_them(tmp_path: Path) -> None:
    secrets = Marked(tmp_path)
    config = secrets.config(dict.fromkeys(_DIALECTS, 0) | {name: place for place, name in enumerate(_DIALECTS, 1)})
    chosen = settings.load({}, str(config), {})
    assert secrets.found(chosen.redis, *(options.token for _, options in chosen.protocols.open())) == {"Xm1", "Xm2"}
    key = secrets.webhook.encode()
    options = Options("http://h", ["t"], 1, 1, 1.0, 1.0, [], [], [], [key], {"t": [key]}, {})
    assert not secrets.found(repr(chosen), str(chosen), f"{chosen}", repr(chosen.protocols), repr(options))
    assert not secrets.found(repr(read_url(chosen.redis, 1.0)))
