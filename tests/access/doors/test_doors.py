"""Every door of a service that asks for tokens: it is shut for who shows none, or one that does not hold, nothing is
done then, and it opens for the right that it needs and for no other."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
import pytest_asyncio

from jobqueue.access.issuing import Issued
from jobqueue.access.tokens import COMMANDS, OF_COMMANDS, OF_NOTHING_ELSE, RIGHTS, right_for
from tests.access.doors import dialect_requests, native_requests
from tests.access.doors.contents import contents
from tests.access.doors.credentials import KINDS, Credentials, credentials
from tests.access.doors.dialect_requests import (
    BEANSTALKD,
    HTTP,
    PLACES,
    Call,
    by_tcp,
    by_udp,
    queue_server_requests,
    said,
)
from tests.access.doors.native_requests import REQUESTS, TOPIC
from tests.access.doors.refusals import refused
from tests.kit.guarded import Guarded, bearer, guarded
from tests.kit.ports import free_ports
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

DIALECTS = (*HTTP, "queue_server", "beanstalkd")
CHALLENGE = 'Bearer realm="jobqueue"'
OPEN_PATHS = ("/healthz", "/readyz")
UNAUTHORIZED = {
    "success": False,
    "id": None,
    "error": "the request needs a valid token",
    "code": "UNAUTHORIZED",
}
NOBODY = "nobody"  # the name of no token
ALLOWED = {
    "produce": "add update delete schedule unschedule",
    "consume": "pop finish touch release bury leave delete",
    "look": "get explain peek stats forecast figures topics workers instances health schedules find",
    "operate": "kick run pause resume purge operation",
    "bodies": "",
    "metrics": "",
    "actor": "",
}
"""The commands of each right but `admin`, which has all."""
_AT_ONCE = 16
T = TypeVar("T")


class Doors:
    """A service that asks for tokens at all its doors, and the tokens that do not open them."""

    def __init__(
        self, service: Guarded, ports: dict[str, int], shown: Credentials, http: aiohttp.ClientSession
    ) -> None:
        self.service = service
        self.ports = ports
        self.shown = shown
        self.http = http
        self.paths: list[str] = []
        """All paths that the service names."""

    async def answer(
        self, method: str, url: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers with small letters, and body."""
        async with self.http.request(method, url, headers=headers, data=body) as answer:
            named = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, named, await answer.read()

    async def fill(self) -> None:
        """Have jobs in all states, and some of each dialect, so that each request would change something."""
        text = self.shown.valid.token.text
        await self._do([{"command": "purge", "topic": topic} for topic in (TOPIC, "q", "ns/q")])
        adds: list[dict[str, Any]] = [
            {"command": "add", "topic": TOPIC, "id": name, "body": 1, "if_exists": "replace"}
            for name in ("dead", "held", "ready", native_requests.ID)
        ]
        adds[-1]["delay"] = 3600
        await self._do(adds)
        await self._do([{"command": "pop", "id": name} for name in ("dead", "held")])
        await self._do([{"command": "bury", "id": "dead"}])
        await self._do([{**REQUESTS["schedule"], "body": 2}])
        for name in ("lmstfy", "camellia"):
            add = HTTP[name][0]
            status, _, body = await self.answer(add.method, urls(self, name)[0] + add.target, {"X-Token": text}, b"1")
            assert status in (200, 201), body
        assert (await by_tcp(self.ports["queue_server"], queue_server_requests(text)[0]))["code"] == 0

    async def _do(self, commands: list[dict[str, Any]]) -> None:
        status, answers = await self.service.ask(self.shown.valid, commands)
        assert status == 200 and all(answer["success"] for answer in answers), answers

    async def contents(self) -> dict[bytes, bytes]:
        return await contents(self.service.redis)


def tables(ports: dict[str, int], **more: str) -> str:
    """The settings that open the dialects, those over HTTP below a path, too."""
    lines = []
    for name, port in ports.items():
        lines += [f"[protocols.{name}]", f"port = {port}", more.get(name, "")]
        lines += [f'path = "/{name}"'] if name in HTTP else []
    return "\n".join([*lines, ""])


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="doors")
async def all_doors() -> AsyncIterator[Doors]:
    """Shared by the tests. mykit's and lmstfy's own token stands for no token of the service."""
    ports = dict(zip(DIALECTS, free_ports(len(DIALECTS)), strict=True))
    more = {
        "mykit": 'clear_all = true\ntoken = "own"',
        "lmstfy": 'token = "own"',
        "beanstalkd": f'act_as = "{NOBODY}"',
    }
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        # Nothing that is compared may end by itself meanwhile.
        settings = 'access = "tokens"\ndefault_retention_s = 3600\n' + tables(ports, **more)
        async with guarded(Path(name), usual=settings) as service, aiohttp.ClientSession() as http:
            doors = Doors(service, ports, await credentials(service), http)
            _, _, body = await doors.answer("GET", f"{service.url}/", bearer(doors.shown.valid))
            doors.paths = ["/", *json.loads(body)["paths"]]
            yield doors


@pytest_asyncio.fixture(loop_scope="module", name="full")
async def full_doors(doors: Doors) -> Doors:
    """With jobs behind them."""
    await doors.fill()
    return doors


async def together(works: Iterable[Awaitable[T]]) -> list[T]:
    """The results of works, of which some go on at once."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def limited(work: Awaitable[T]) -> T:
        async with limit:
            return await work

    return list(await asyncio.gather(*map(limited, works)))


def check_challenge(status: int, headers: dict[str, str], body: bytes, *, is_head: bool = False) -> None:
    assert (status, headers["www-authenticate"], headers["connection"]) == (401, CHALLENGE, "close")
    assert is_head or json.loads(body) == UNAUTHORIZED


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_valid_token_no_command_is_done(full: Doors, kind: str) -> None:
    before = await full.contents()
    requests: list[Any] = [*REQUESTS.values(), [*REQUESTS.values()], [], "no command", {"command": "nope"}]
    for request in requests:
        answer = await full.answer(
            "POST", f"{full.service.url}/command", full.shown.header(kind), json.dumps(request).encode()
        )
        check_challenge(*answer)
    assert await full.contents() == before


async def test_a_valid_token_in_any_other_form_or_place_opens_nothing(full: Doors) -> None:
    before, text = await full.contents(), full.shown.valid.token.text
    forms = ("{}", "Basic {}", "Token {}", "bearer:{}", 'Bearer "{}"', "Bearer {},", "Bearer {0} {0}", "Bearer", "jqt_")
    shown: list[tuple[str, dict[str, str]]] = [("", {"Authorization": form.format(text)}) for form in forms]
    shown += [("", {"X-Token": text}), (f"?token={text}", {}), ("", {"Cookie": f"token={text}"})]
    shown += [("", {"Proxy-Authorization": f"Bearer {text}"})]
    for query, headers in shown:
        for request in REQUESTS.values():
            url = f"{full.service.url}/command{query}"
            check_challenge(*await full.answer("POST", url, headers, json.dumps(request).encode()))
    assert await full.contents() == before


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_valid_token_no_page_is_shown_but_that_the_service_is_there(doors: Doors, kind: str) -> None:
    headers = doors.shown.header(kind)
    for path in doors.paths:
        for method in ("GET", "HEAD"):
            answer = await doors.answer(method, doors.service.url + path, headers)
            if path in OPEN_PATHS:
                assert answer[0] == 200
                assert method == "HEAD" or json.loads(answer[2]) in ({"status": "up"}, {"ready": True})
            else:
                check_challenge(*answer, is_head=method == "HEAD")


@pytest.mark.parametrize("first", [b"POST /command", b"GET /metrics", b"GET /readyz", b"PUT /lmstfy/api/ns/q"])
async def test_a_refusal_does_not_tell_what_is_wrong_with_a_token(doors: Doors, first: bytes) -> None:
    """Byte for byte, on the fast path and on the complete one."""
    port = doors.service.service.port
    native = not first.startswith(b"PUT")  # lmstfy tells that there is none
    answers = set()
    for more in (b"", b"X-Odd:1\r\n"):
        for text in doors.shown.texts.values():
            if text is not None or native:
                closes = b"" if first == b"POST /command" else b"Connection: close\r\n"
                answers.add(await asyncio.to_thread(refused, port, text, more=more + closes, first=first))
    assert len(answers) == 1, answers
    assert (b" 200 " if b"readyz" in first else b" 401 ") in answers.pop()


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_valid_token_no_other_method_does_anything(full: Doors, kind: str) -> None:
    before, headers = await full.contents(), full.shown.header(kind)
    body = json.dumps(REQUESTS["add"]).encode()
    for path in (*full.paths, "/command", "/nowhere"):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"):
            if path in OPEN_PATHS and method == "GET":
                continue
            status, _, told = await full.answer(method, full.service.url + path, headers, body)
            assert status in (401, 404, 405), (method, path, status)
            assert json.loads(told)["code"] in ("UNAUTHORIZED", "NO_SUCH_PATH", "METHOD_NOT_ALLOWED")
    assert await full.contents() == before


async def test_each_page_is_shown_for_its_right(doors: Doors) -> None:
    tokens = {right: await doors.service.token(right) for right in ("look", "metrics", "touch")}
    tokens["admin"] = doors.shown.valid
    for path in doors.paths:
        for right, token in tokens.items():
            status, _, body = await doors.answer("GET", doors.service.url + path, bearer(token))
            if path == "/metrics" and right not in ("metrics", "admin"):
                told = json.loads(body)
                assert (status, told["code"], told["right"]) == (403, "FORBIDDEN", "metrics")
                continue
            assert status == 200
            if path == "/readyz":
                assert ("checks" in json.loads(body)) == (right in ("look", "admin"))


async def test_each_command_has_a_request() -> None:
    assert {*REQUESTS} | {"clock", "reset"} == {*COMMANDS}  # those two only a test service has


async def test_each_command_is_done_for_a_token_with_the_right_to_it_alone(full: Doors) -> None:
    for name, request in REQUESTS.items():
        asked = {"command": "token", "action": "list"} if name == "token" else request  # it gives only rights it has
        status, answer = await full.service.ask(await full.service.token(name), asked)
        assert status not in (401, 403) and answer.get("code") != "FORBIDDEN", (name, answer)


async def forbidden(doors: Doors, token: Issued, name: str) -> str:
    """The right that a command is refused for, alone and in an array, though the others beside it are done."""
    whoami = {"command": "whoami"}
    status, answer = await doors.service.ask(token, REQUESTS[name])
    assert (status, answer["code"]) == (403, "FORBIDDEN"), (name, answer)
    status, answers = await doors.service.ask(token, [whoami, REQUESTS[name], whoami])
    assert status == 200 and [each["success"] for each in answers] == [True, False, True]
    assert answers[1] == answer
    right: str = answer["right"]
    return right


async def test_each_command_is_refused_to_a_token_that_has_the_right_to_all_others(full: Doors) -> None:
    all_rights = {*REQUESTS, *OF_NOTHING_ELSE}
    tokens = {
        name: await full.service.token(*(all_rights - {name})) for name in REQUESTS if right_for(name) in OF_COMMANDS
    }
    before = await full.contents()
    for name, token in tokens.items():
        assert name in (right := await forbidden(full, token, name)) or name in OF_COMMANDS[right]
    assert await full.contents() == before


async def test_each_right_allows_its_commands_and_no_others(full: Doors) -> None:
    tokens = {right: await full.service.token(right) for right in RIGHTS}
    assert {*tokens} == {*ALLOWED, "admin"}
    asked = REQUESTS | {"token": {"command": "token", "action": "list"}}
    for right, token in tokens.items():
        for name, request in asked.items():
            _, answer = await full.service.ask(token, request)
            is_allowed = name == "whoami" or right == "admin" or name in ALLOWED[right].split()
            assert (answer.get("code") != "FORBIDDEN") == is_allowed, (right, name, answer)


async def test_each_right_is_named_to_a_token_that_has_all_others(full: Doors) -> None:
    tokens = {right: await full.service.token(*({*ALLOWED} - {right})) for right in ALLOWED}
    before = await full.contents()
    for right, token in tokens.items():
        others = " ".join(names for other, names in ALLOWED.items() if other != right).split()
        for name in {*ALLOWED[right].split()} - {*others}:
            assert await forbidden(full, token, name) == right
        for name in {*REQUESTS} - {*" ".join(ALLOWED.values()).split(), "whoami"}:
            assert await forbidden(full, token, name) == "admin"
    for command in (*({"command": "get", "id": "ready"}, {"command": "peek", "topic": TOPIC}), REQUESTS["schedules"]):
        status, answer = await full.service.ask(tokens["bodies"], command | {"body": True})
        assert (status, answer["right"]) == (403, "bodies")
        status, answer = await full.service.ask(tokens["bodies"], command)
        shown = [answer, *answer.get("jobs", ()), *answer.get("schedules", ())]
        assert status == 200 and not any("value" in each for each in shown)
    assert await full.contents() == before


def urls(doors: Doors, name: str) -> list[str]:
    """Where a dialect over HTTP is: on its port, and below its path."""
    return [f"http://127.0.0.1:{doors.ports[name]}", f"{doors.service.url}/{name}"]


async def calls(
    doors: Doors, name: str, places: Iterable[str], token: str | None
) -> list[tuple[Call, int, dict[str, str], bytes]]:
    """The answers to all calls of a dialect, each made at both of its ports with the token in each place."""

    async def ask(url: str, call: Call, place: str) -> tuple[Call, int, dict[str, str], bytes]:
        target, headers = (call.target, {}) if token is None else PLACES[place](call, token)
        return call, *await doors.answer(call.method, url + target, headers, call.body or None)

    return await together(ask(url, call, place) for url in urls(doors, name) for call in HTTP[name] for place in places)


@pytest.mark.parametrize("name", HTTP)
@pytest.mark.parametrize("kind", [*KINDS, "the dialect's own token"])
async def test_without_a_valid_token_no_call_of_a_dialect_is_done(full: Doors, name: str, kind: str) -> None:
    token = full.shown.texts.get(kind, "own")
    before = await full.contents()
    for call, status, _, body in await calls(full, name, PLACES if token else ["nowhere"], token):
        is_size = name == "lmstfy" and call.path.endswith("/size")
        assert status == 401, (call, status, body)
        if name == "lmstfy":
            is_told_missing = token is None and not is_size
            assert json.loads(body) == {"error": "token not found" if is_told_missing else "invalid token"}
    assert await full.contents() == before


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", HTTP)
async def test_a_valid_token_opens_all_calls_of_a_dialect(full: Doors, name: str, place: str) -> None:
    for call, status, _, body in await calls(full, name, [place], full.shown.valid.token.text):
        assert status in (200, 201, 204, 404), (call, status, body)
        assert b"token" not in body, (call, body)


@pytest.mark.parametrize("name", HTTP)
async def test_a_token_without_the_right_to_it_does_nothing_in_a_dialect_either(full: Doors, name: str) -> None:
    narrow = await full.service.token("whoami")
    before = await full.contents()
    for call, _, _, body in await calls(full, name, ["as a bearer"], narrow.token.text):
        assert b"the token lacks the right" in body, (call, body)
    assert await full.contents() == before


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_valid_token_no_action_of_queue_server_is_done(full: Doors, kind: str) -> None:
    before, port = await full.contents(), full.ports["queue_server"]
    for request in queue_server_requests(full.shown.texts[kind]):
        for answer in (await by_tcp(port, request), await by_udp(port, request)):
            assert (answer["code"], answer["reason"]) == (-1, "forbidden"), request
            assert "token" not in answer
    assert await full.contents() == before


async def test_a_valid_token_opens_all_actions_of_queue_server(full: Doors) -> None:
    port = full.ports["queue_server"]
    narrow = await full.service.token("whoami")
    for request in queue_server_requests(full.shown.valid.token.text):
        for answer in (await by_tcp(port, request), await by_udp(port, request)):
            assert answer["code"] == 0 or answer["reason"] == "not support", (request, answer)
    before = await full.contents()
    for request in queue_server_requests(narrow.token.text):
        for answer in (await by_tcp(port, request), await by_udp(port, request)):
            assert request["action"] == 8 or answer["code"] == -1, (request, answer)  # 8 only names the service
    assert await full.contents() == before


async def test_beanstalkds_clients_do_nothing_while_no_token_has_the_name_that_they_act_as(full: Doors) -> None:
    before = await full.contents()
    for data in (*BEANSTALKD, b"nonsense\r\n"):
        assert await said(full.ports["beanstalkd"], data, lines=9) == b"INTERNAL_ERROR\r\n", data
    assert await full.contents() == before


async def test_who_shows_a_dialects_token_acts_as_the_token_that_is_named_there_as_long_as_it_holds() -> None:
    ports = dict(zip(DIALECTS, free_ports(len(DIALECTS)), strict=True))
    acting = 'act_as = "acting"'
    settings = tables(ports, **dict.fromkeys(DIALECTS, f'{acting}\ntoken = "own"') | {"beanstalkd": acting})
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with guarded(Path(name), settings=settings) as service, aiohttp.ClientSession() as http:
            token = await service.token("produce", name="acting")
            doors = Doors(service, ports, Credentials(token, {}), http)
            for dialect in HTTP:
                await _acts(doors, dialect)
            await _acts_in_queue_server(ports["queue_server"])
            await _acts_in_beanstalkd(doors)
            await service.issuing.revoke(token.record.id)
            await until(lambda: _is_shut(ports["beanstalkd"]))
            before = await doors.contents()
            for request in queue_server_requests("own"):
                assert (await by_tcp(ports["queue_server"], request))["reason"] == "forbidden"
            for dialect in HTTP:
                for call, status, _, body in await calls(doors, dialect, PLACES, "own"):
                    assert status == 401, (call, status, body)
            assert await doors.contents() == before


async def test_a_connection_of_beanstalkd_ends_with_the_token_that_it_acts_as(doors: Doors) -> None:
    token = await doors.service.token("produce", name=NOBODY)
    port = doors.ports["beanstalkd"]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(BEANSTALKD[0])
    assert (await reader.readline()).startswith(b"INSERTED ")
    await doors.service.issuing.revoke(token.record.id)
    await until(lambda: _is_shut(port))
    before = await doors.contents()
    writer.write(BEANSTALKD[0] * 2)
    assert await reader.read() == b"INTERNAL_ERROR\r\n"
    writer.close()
    assert await doors.contents() == before


async def _acts_in_queue_server(port: int) -> None:
    produce, consume = queue_server_requests("own")[:2]
    assert (await by_tcp(port, produce))["code"] == 0
    assert "right consume" in (await by_tcp(port, consume))["detail"]
    for wrong in (produce | {"token": "no"}, produce | {"token": None}):
        assert (await by_tcp(port, wrong))["reason"] == "forbidden"


async def _acts_in_beanstalkd(doors: Doors) -> None:
    assert (await said(doors.ports["beanstalkd"], BEANSTALKD[0])).startswith(b"INSERTED ")
    assert await said(doors.ports["beanstalkd"], b"kick 9\r\n") == b"INTERNAL_ERROR\r\n"


async def _acts(doors: Doors, dialect: str) -> None:
    """With the dialect's own token, one may add and no more; with another one, or none, nothing."""
    add = HTTP[dialect][0]._replace(query=HTTP[dialect][0].query.replace(dialect_requests.ID, dialect))
    url = f"http://127.0.0.1:{doors.ports[dialect]}"
    status, _, body = await doors.answer(add.method, url + add.target, {"X-Token": "own"}, add.body or None)
    assert status in (200, 201) and b"lacks" not in body, body
    pop = HTTP[dialect][1]
    _, _, body = await doors.answer(pop.method, url + pop.target, {"X-Token": "own"}, pop.body or None)
    assert b"the token lacks the right" in body or dialect == "mykit", body
    for headers in ({}, {"X-Token": "no"}):
        assert (await doors.answer(add.method, url + add.target, headers, add.body or None))[0] == 401


async def _is_shut(port: int) -> bool:
    return await said(port, b"list-tube-used\r\n") == b"INTERNAL_ERROR\r\n"


async def test_beanstalkds_port_does_not_open_without_a_token_to_act_as(doors: Doors, tmp_path: Path) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text('access = "tokens"\n[protocols.beanstalkd]\nport = 11300\n')
    said = await ServiceProcess("--config", str(config), log=tmp_path / "log").refusal()
    assert "protocols.beanstalkd needs act_as" in said


async def test_paths_that_are_opened_by_name_need_no_token_and_others_stay_shut(doors: Doors) -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        settings = 'access = "tokens"\nopen_paths = ["/metrics", "/openapi.json", "/readyz"]\n'
        async with guarded(Path(name), usual=settings) as service:
            for path in doors.paths:
                for headers in ({}, {"Authorization": "Bearer nonsense"}):
                    status, _, body = await doors.answer("GET", service.url + path, headers)
                    assert status == (401 if path == "/" else 200)
                    assert path != "/readyz" or "checks" in json.loads(body)
