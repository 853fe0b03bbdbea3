"""Single sign-on through a proxy; who acts; and which address is that of a client."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from jobqueue_client.access import Token

from jobqueue.cli.console.chosen import options_of
from jobqueue.console.site import Site
from jobqueue.errors import SettingsError
from jobqueue.settings import Settings, load
from tests.jobqueue.console.consoles import Console, console
from tests.kit.forked import started
from tests.kit.guarded import Guarded, guarded
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEADERS: dict[str, Any] = {"user_header": "X-Forwarded-User", "groups_header": "X-Forwarded-Groups"}
HERE = ("127.0.0.0/8",)
ELSEWHERE = ("10.0.0.0/8", "fd00::/8")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    """A service that asks for tokens."""
    async with guarded(tmp_path_factory.mktemp("house")) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def roles(house: Guarded) -> dict[str, Token]:
    """The tokens of two groups, of which the service lets the first name who acts."""
    operators = await house.token("look", "operate", "produce", "actor", name="operators")
    viewers = await house.token("look", "produce", name="viewers")
    files = {}
    for group, issued in (("ops", operators), ("all", viewers)):
        file = house.folder / group
        file.write_text(issued.token.text + "\n")
        files[group] = Token(token_file=file)
    return files


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(house: Guarded, roles: dict[str, Token]) -> AsyncIterator[Console]:
    async with console(house.url, trusted_proxies=HERE, roles=roles, **HEADERS) as made:
        yield made


def signed_on(user: str, *groups: str) -> dict[str, str]:
    """What a proxy says of a user."""
    return {"X-Forwarded-User": user, "X-Forwarded-Groups": ", ".join(groups)}


async def actors(house: Guarded) -> list[tuple[str, str, Any]]:
    """Who has done what to which job, the newest first."""
    _, answer = await house.ask(await house.token("admin"), {"command": "actions"})
    return [(each["actor"], each["action"], each.get("id")) for each in answer["actions"]]


async def add(house: Guarded, job_id: str) -> None:
    _, answer = await house.ask(
        await house.token("produce"), {"command": "add", "topic": "orders", "id": job_id, "delay": 60, "body": 1}
    )
    assert answer["success"]


async def test_a_person_whom_the_proxy_has_signed_in_acts_under_their_own_name(front: Console, house: Guarded) -> None:
    await add(house, "sso-1")
    ann = signed_on("ann@queue.example", "staff", "ops", "all")
    _, text = await front.get("/topics", **ann)
    assert '<span class="who">ann@queue.example</span>' in text and "Sign out" not in text
    assert "deleted" in await front.note("/do/delete", {"id": "sso-1"}, **ann)
    assert ("operators/ann@queue.example", "delete", "sso-1") in await actors(house)


async def test_a_role_whose_token_may_not_name_people_acts_under_its_own(front: Console, house: Guarded) -> None:
    """Who does what is then not told apart: a delete by a token is not even logged."""
    await add(house, "sso-2")
    bob = signed_on("bob", "all")
    response, text = await front.post("/do/run", {"id": "sso-2"}, **bob)
    assert response.status == 403 and "the token lacks the right operate" in text
    assert "deleted" in await front.note("/do/delete", {"id": "sso-2"}, **bob)
    assert "sso-2" not in {job_id for _, _, job_id in await actors(house)}


async def test_a_person_without_a_role_is_refused_by_name(front: Console) -> None:
    for groups in ((), ("staff",), ("ops2",)):
        response, text = await front.get("/topics", **signed_on("carl", *groups))
        assert response.status == 403 and "carl is in no group that has a role here" in text


async def test_a_user_who_is_named_twice_or_in_no_text_is_refused(front: Console) -> None:
    response, text = await front.get("/topics", **signed_on("\u202eann", "ops"))
    assert response.status == 400 and "X-Forwarded-User must be there once, and be printable UTF-8" in text


async def test_without_the_header_of_the_proxy_people_sign_in_with_tokens(front: Console, house: Guarded) -> None:
    await add(house, "own-1")
    assert (await front.get("/topics"))[0].status == 303
    boss = await front.sign_in((await house.token("admin", name="boss")).token.text)
    assert "deleted" in await front.note("/do/delete", {"id": "own-1"}, **boss)
    assert ("boss/boss", "delete", "own-1") in await actors(house)


async def test_a_token_of_a_group_that_is_replaced_in_its_file_goes_on_and_one_that_ends_is_named(
    house: Guarded,
) -> None:
    admin, issued, file = await house.token("admin"), await house.token("look"), house.folder / "mine"
    file.write_text(issued.token.text)
    async with console(house.url, trusted_proxies=HERE, roles={"ops": Token(token_file=file)}, **HEADERS) as front:
        ann = signed_on("ann", "ops")
        assert (await front.get("/topics", **ann))[0].status == 200
        other = await house.token("look")
        file.write_text(other.token.text)
        await house.ask(admin, {"command": "token", "action": "revoke", "id": issued.token.id})
        await until(lambda: _is_unknown(house, issued))
        assert (await front.get("/topics", **ann))[0].status == 200
        await house.ask(admin, {"command": "token", "action": "revoke", "id": other.token.id})

        async def is_named() -> bool:
            response, text = await front.get("/topics", **ann)
            return response.status == 403 and "does not know the token of the group ops" in text

        await until(is_named, every_s=0.1)


async def _is_unknown(house: Guarded, issued: Any) -> bool:
    return (await house.ask(issued, {"command": "whoami"}))[0] == 401


async def test_headers_from_elsewhere_are_ignored_and_logged(
    house: Guarded, roles: dict[str, Token], tmp_path: Path
) -> None:
    """As the command is run, with a file of settings."""
    port, log, config = free_port(), tmp_path / "log", tmp_path / "console.toml"
    config.write_text(
        f'console_title = "from a file"\ntrusted_proxies = {list(ELSEWHERE)}\nconsole_port = {port}\n'
        'console_user_header = "X-Forwarded-User"\nconsole_groups_header = "X-Forwarded-Groups"\n'
        f'[console_roles]\nops = "{house.folder}/ops"\n'
    )
    with log.open("wb") as output:
        process = await started(
            ("console", "--url", house.url, "--config", str(config)),
            {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")},
            stdout=output,
            stderr=output,
        )
    try:
        async with console(house.url) as client:
            client.url = f"http://127.0.0.1:{port}"

            async def is_up() -> bool:
                try:
                    return "from a file" in (await client.get("/sign-in"))[1]
                except OSError:
                    return False

            await until(is_up)
            for _ in range(3):
                response, _ = await client.get("/topics", **signed_on("ann", "ops"))
                assert response.status == 303
            await client.get("/", Host="evil.example", **{"X-Forwarded-For": "192.0.2.7"})
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    text = log.read_text()
    assert text.count("console.header_ignored") == 1 and '"header":"X-Forwarded-User"' in text
    assert '"address":"127.0.0.1"' in text and "192.0.2.7" not in text


async def test_wrong_tokens_are_counted_by_the_address_that_a_trusted_proxy_forwards(house: Guarded) -> None:
    async def statuses(front: Console, *forwarded: str) -> list[int]:
        heads = [{"X-Forwarded-For": each} for each in forwarded]
        return [(await front.post("/sign-in", {"token": "x"}, **head))[0].status for head in heads]

    async with console(house.url, trusted_proxies=(*HERE, *ELSEWHERE)) as front:
        assert await statuses(front, *["198.51.100.1, 192.0.2.7, 10.1.1.1"] * 6) == [401] * 5 + [429]
        assert await statuses(front, "192.0.2.7", "192.0.2.8", "192.0.2.7, fd00::1") == [429, 401, 429]
        assert await statuses(front, "192.0.2.7, nonsense") == [401]  # what a proxy did not write is its own address
    async with console(house.url, trusted_proxies=ELSEWHERE) as front:
        assert await statuses(front, *(f"192.0.2.{n}" for n in range(6))) == [401] * 5 + [429]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('trusted_proxies = ["10.0.0.1/8"]', "trusted_proxies: 10.0.0.1/8 has host bits set"),
        ('console_user_header = "X-User"', "console_groups_header, console_roles, trusted_proxies must be set, too"),
        ('console_roles = {a = "/a"}', "console_user_header, console_groups_header, trusted_proxies must be set, too"),
        ('console_user_header = "X User"', "console_user_header: 'X User' is not the name of a header"),
        ("console_roles = {a = 1}", "console_roles.a in the file"),
    ],
)
async def test_wrong_settings_of_single_sign_on_are_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "jobqueue.toml").write_text(text)
    with pytest.raises(SettingsError) as refused:
        load({}, str(tmp_path / "jobqueue.toml"), {})
    assert said in str(refused.value)


@pytest.mark.usefixtures("redis")  # it is empty
async def test_a_file_of_a_token_that_cannot_be_read_is_refused_at_the_start(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with pytest.raises(SettingsError, match=r"console_roles\.ops: token_file cannot be read: .*: /nowhere"):
        options_of(Settings(console_roles={"ops": "/nowhere"}), "http://127.0.0.1", 1)
    log, config = tmp_path / "log", tmp_path / "jobqueue.toml"
    config.write_text(
        f"console_port = {free_port()}\n"
        'trusted_proxies = ["127.0.0.1"]\nconsole_user_header = "X-User"\nconsole_groups_header = "X-Groups"\n'
        '[console_roles]\nops = "/nowhere"\n'
    )
    text = await ServiceProcess("--redis", redis_server.url, "--config", str(config), log=log).refusal()
    assert "console_roles.ops: token_file cannot be read" in text and "Traceback" not in text


async def test_the_token_of_a_group_is_in_no_repr(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("marked-secret")
    options = options_of(Settings(console_roles={"ops": str(tmp_path / "t")}), "http://127.0.0.1", 1)
    assert "marked-secret" not in repr(options) + repr(vars(Site(options)))
