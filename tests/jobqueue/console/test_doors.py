"""Which requests are answered: hosts, origins, methods, sessions, rights; and the headers of each answer."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio

from jobqueue.console import sessions
from jobqueue.console.actions import ACTIONS
from jobqueue.console.site import PAGES, SIGN_IN, SIGN_OUT
from tests.jobqueue.console.consoles import Console, console
from tests.kit.forked import started
from tests.kit.guarded import Guarded, guarded
from tests.kit.ports import free_port
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

# What would be done if the request were taken. No job has these ids.
FORM = {
    "id": "nothing0",
    "topic": "t",
    "name": "n",
    "confirm": "t",
    "count": "1",
    "body": "1",
    "when": "1",
    "priority": "1",
    "kind": "kick",
    "prefix": "t",
    "operation": "0123456789ab",
    "expect": "1",
    "rate": "1",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    """A service that asks for tokens."""
    async with guarded(tmp_path_factory.mktemp("house")) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(house: Guarded) -> AsyncIterator[Console]:
    async with console(house.url) as made:
        yield made


def posts(front: Console) -> set[str]:
    """The paths of all POSTs that the console knows."""
    routes = front.site.application.router.routes()
    return {str(route.resource.canonical) for route in routes if route.method == "POST" and route.resource}


async def test_no_post_is_missing_here(front: Console) -> None:
    assert posts(front) == {*(f"/{name}" for name in ACTIONS), f"/{SIGN_IN}", f"/{SIGN_OUT}"}


async def test_a_post_of_another_origin_is_refused(front: Console, house: Guarded) -> None:
    session = await front.sign_in((await house.token("admin")).token.text)
    heads: list[dict[str, str]] = [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site", "Origin": front.url},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": front.url.replace("127.0.0.1", "localhost")},
        {},
    ]
    for path in sorted(posts(front)):
        for head in heads:
            response, _ = await front.ask("POST", path, data=FORM, headers={**session, **head})
            assert response.status == 403, (path, head)


async def test_an_origin_of_our_own_is_enough_where_the_browser_says_no_more(front: Console, house: Guarded) -> None:
    session = await front.sign_in((await house.token("admin")).token.text)
    response, _ = await front.ask("POST", "/do/run", data=FORM, headers={**session, "Origin": front.url})
    assert response.status == 404


async def test_an_action_without_a_session_leads_to_the_sign_in(front: Console) -> None:
    for name in ACTIONS:
        response, _ = await front.post(f"/{name}", FORM)
        assert (response.status, response.headers["Location"]) == (303, "/sign-in")


async def test_a_page_without_a_session_leads_to_the_sign_in_and_back(front: Console, house: Guarded) -> None:
    for name in PAGES:
        response, _ = await front.get(f"/{name}?id=a%23b%26c")
        assert response.status == 303
        asked = urlsplit(response.headers["Location"])
        assert (asked.path, parse_qs(asked.query)) == ("/sign-in", {"back": [f"/{name}?id=a%23b%26c"]})
    _, text = await front.get("/sign-in?back=/job%3Fid%3Da%2523b")
    assert '<a href="/job?id=a%23b">I have signed in already</a>' in text
    _, text = await front.get("/sign-in?back=javascript:alert(1)")
    assert '<a href="/">I have signed in already</a>' in text and "javascript:" not in text
    token = (await house.token("look")).token.text
    response, _ = await front.post("/sign-in", {"token": token, "back": "/job?id=a%23b"})
    assert response.headers["Location"] == "/job?id=a%23b"
    response, _ = await front.post("/sign-in", {"token": token, "back": "//evil.example"})
    assert response.headers["Location"] == "/"


async def test_the_service_refuses_what_the_token_may_not_do(front: Console, house: Guarded) -> None:
    session = await front.sign_in((await house.token("look")).token.text)
    for name in ACTIONS:
        response, text = await front.post(f"/{name}", FORM, **session)
        assert response.status == 403, (name, text)
        assert "the token lacks the right" in text


async def test_a_page_that_the_token_may_not_see_says_so(front: Console, house: Guarded) -> None:
    session = await front.sign_in((await house.token("look")).token.text)
    for path in ("/tokens", "/actions"):
        response, text = await front.get(path, **session)
        assert response.status == 403 and "lacks the right" in text


async def test_an_action_is_not_carried_out_by_a_get(front: Console, house: Guarded) -> None:
    session = await front.sign_in((await house.token("admin")).token.text)
    for name in ACTIONS:
        response, _ = await front.get(f"/{name}?id=nothing", **session)
        assert response.status == 405
    for method in ("PUT", "DELETE", "PATCH"):
        response, _ = await front.ask(method, "/topics", headers={**session, "Sec-Fetch-Site": "same-origin"})
        assert response.status == 405


async def test_a_read_only_console_knows_no_action(house: Guarded) -> None:
    async with console(house.url, read_only=True) as front:
        assert posts(front) == {f"/{SIGN_IN}", f"/{SIGN_OUT}"}
        session = await front.sign_in((await house.token("admin")).token.text)
        for name in ACTIONS:
            response, _ = await front.post(f"/{name}", FORM, **session)
            assert response.status == 404
        for path in ("/topics", "/topic?name=t", "/tokens"):
            assert "/do/" not in (await front.get(path, **session))[1]


async def test_another_name_in_host_is_misdirected(front: Console) -> None:
    near = ("127.0.0.1.evil.example", "localhost.evil.example:80", "[::1].evil.example")
    for host in ("evil.example", *near, "", "10.0.0.1"):
        for path in ("/", "/sign-in", "/nowhere"):
            response, _ = await front.get(path, Host=host)
            assert response.status == 421, host


async def test_its_own_names_are_known(house: Guarded) -> None:
    async with console(house.url, hosts=("Queue.example",)) as front:
        for host in ("localhost", "localhost:1", "127.0.0.1", "[::1]:8001", "queue.example", "QUEUE.example.:443"):
            response, _ = await front.get("/sign-in", Host=host)
            assert response.status == 200, host


async def test_each_answer_has_the_headers_that_protect_it(front: Console, house: Guarded) -> None:
    session = await front.sign_in((await house.token("admin")).token.text)
    nonces = set()
    for path in ("/", "/topics", "/nowhere", "/job?id=nobody", "/sign-in", f"/static/{'0' * 20}/console.css"):
        response, _ = await front.get(path, **session)
        heads = response.headers
        assert heads["X-Content-Type-Options"] == "nosniff" and heads["Referrer-Policy"] == "same-origin"
        assert heads["Cross-Origin-Opener-Policy"] == heads["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "camera=()" in heads["Permissions-Policy"] and heads["Server"] == "jobqueue"
        assert heads["Cache-Control"] == "no-store"
        policy = heads["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'") and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "data:" not in policy
        nonces.add(policy.partition("nonce-")[2].partition("'")[0])
    assert len(nonces) == 5  # four pages that somebody sees, and none


async def test_files_are_kept_by_the_browser_for_good(front: Console) -> None:
    _, page = await front.get("/sign-in")
    (address,) = {part.split('"')[0] for part in page.split('href="') if "console.css" in part.split('"')[0]}
    response, _ = await front.get(address)
    assert response.status == 200
    assert response.headers["Cache-Control"] == "private, max-age=31536000, immutable"
    assert (await front.get(address.replace("console.css", "../site.py")))[0].status == 404


async def test_the_cookie_of_a_session_is_for_this_host_and_no_script(front: Console, house: Guarded) -> None:
    token = (await house.token("look")).token.text
    response, _ = await front.post("/sign-in", {"token": token})
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("jobqueue=") and "Secure" not in cookie
    async with console(house.url, hosts=("queue.example",)) as public:
        response, _ = await public.post("/sign-in", {"token": token}, Host="queue.example")
        cookie = response.headers["Set-Cookie"]
        assert cookie.startswith("__Host-jobqueue=") and "Secure" in cookie and "Domain" not in cookie
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie


async def test_a_session_has_an_id_that_nobody_gave_it(front: Console, house: Guarded) -> None:
    token = (await house.token("look")).token.text
    planted = {"Cookie": "jobqueue=planted"}
    response, _ = await front.post("/sign-in", {"token": token}, **planted)
    assert "planted" not in response.headers["Set-Cookie"]
    assert (await front.get("/", **planted))[0].status == 303
    old = await front.sign_in(token)
    await front.post("/sign-in", {"token": token}, **old)
    assert (await front.get("/", **old))[0].status == 303


async def test_signing_out_ends_the_session(front: Console, house: Guarded) -> None:
    session = await front.sign_in((await house.token("look")).token.text)
    assert (await front.get("/topics", **session))[0].status == 200
    response, _ = await front.post("/sign-out", {}, **session)
    assert "Max-Age=0" in response.headers["Set-Cookie"]
    assert (await front.get("/topics", **session))[0].status == 303


async def test_a_revoked_token_ends_the_session(front: Console, house: Guarded) -> None:
    issued = await house.token("look")
    session = await front.sign_in(issued.token.text)
    assert (await front.get("/topics", **session))[0].status == 200
    boss = await front.sign_in((await house.token("admin")).token.text)
    assert "revoked" in await front.note("/do/revoke", {"id": issued.token.id}, **boss)

    async def is_out() -> bool:
        return (await front.get("/topics", **session))[0].status == 303

    await until(is_out)
    response, _ = await front.get("/topics", **session, **{"HX-Request": "true"})
    assert response.headers["HX-Refresh"] == "true"


async def test_a_rotated_token_is_shown_once(front: Console, house: Guarded) -> None:
    issued = await house.token("look", name="rotated")
    boss = await front.sign_in((await house.token("admin")).token.text)
    response, text = await front.post("/do/rotate", {"id": issued.token.id, "keep": "1h"}, **boss)
    assert response.status == 200 and f"jqt_{issued.token.id}" in text and "The old one holds until" in text
    _, text = await front.get("/tokens", **boss)
    assert "rotated" in text and f"jqt_{issued.token.id}" not in text


async def test_the_token_never_goes_to_the_browser_again(front: Console, house: Guarded) -> None:
    issued = await house.token("admin")
    session = await front.sign_in(issued.token.text)
    for name in PAGES:
        response, text = await front.get(f"/{name}?id=x&topic=t&name=t", **session)
        assert issued.token.text not in text + str(response.headers)


async def test_those_with_different_tokens_see_different_answers(front: Console, house: Guarded) -> None:
    admin = await house.token("admin")
    for topic in ("mine-1", "yours-1"):
        await house.ask(admin, {"command": "add", "topic": topic, "body": 1})
    mine = await front.sign_in((await house.token("look", topics=["mine-*"])).token.text)
    yours = await front.sign_in((await house.token("look", topics=["yours-*"])).token.text)
    for _ in range(2):
        _, one = await front.get("/topics", **mine)
        _, other = await front.get("/topics", **yours)
        assert "mine-1" in one and "yours-1" not in one
        assert "yours-1" in other and "mine-1" not in other


async def test_after_five_wrong_tokens_a_minute_nobody_is_judged(house: Guarded) -> None:
    right = (await house.token("look")).token.text
    async with console(house.url) as front:
        wrong = ("", "x", "jqt_" + "a" * 57, right[:-1] + ("a" if right[-1] != "a" else "b"), "ü")
        statuses = [(await front.post("/sign-in", {"token": token}))[0].status for token in (*wrong, right)]
        assert statuses == [401, 401, 401, 401, 401, 429]


async def test_an_open_service_is_changed_from_its_own_machine_only(filled: ServiceProcess) -> None:
    async with console(filled.url, hosts=("queue.example",)) as front:
        _, text = await front.get("/topics")
        assert "anyone who reaches this console may look and act" in text and "/do/pause" in text
        response, text = await front.get("/topics", Host="queue.example")
        assert response.status == 200 and "/do/pause" not in text and "may look" in text
        for name in ACTIONS:
            response, _ = await front.post(f"/{name}", FORM, Host="queue.example")
            assert response.status == 403


async def test_a_path_in_front_stands_in_every_link(filled: ServiceProcess) -> None:
    async with console(filled.url, base_path="/queue") as front:
        for path in ("/queue/", "/queue/topics", "/queue/topic?name=mail"):
            response, text = await front.get(path)
            assert response.status == 200
            links = [part.split('"')[0] for part in text.split('href="')[1:]]
            assert len(links) > 10 and all(link.startswith(("/queue/", "#")) for link in links)
        assert (await front.get("/topics"))[0].status == 404


async def test_the_log_tells_of_refusals_and_has_no_token(house: Guarded, tmp_path: Path) -> None:
    """As the command is run."""
    issued, port = await house.token("look"), free_port()
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = await started(
            ("console", "--url", house.url, "--port", str(port)), os.environ, stdout=output, stderr=output
        )
    try:
        async with console(house.url) as client:
            client.url = f"http://127.0.0.1:{port}"

            async def is_up() -> bool:
                try:
                    return (await client.get("/sign-in"))[0].status == 200
                except OSError:
                    return False

            await until(is_up)
            await client.sign_in(issued.token.text)
            await client.post("/sign-in", {"token": "wrong"})
            await client.get("/", Host="evil.example")
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    text = log.read_text()
    assert "console.refused" in text and "session.begun" in text and "session.refused" in text
    assert issued.token.text not in text and issued.token.id in text


async def test_bounds_are_those_of_the_documents() -> None:
    assert (sessions.IDLE_S, sessions.LONGEST_S, sessions.MOST) == (1800, 43_200, 1000)
