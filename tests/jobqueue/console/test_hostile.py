"""What producers and workers write does nothing to whoever looks at it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from jobqueue.console.options import Options
from jobqueue.console.rendering import Assets, Links, Templates
from jobqueue.console.site import PAGES, Site
from tests.jobqueue.console.consoles import Console, Watched, console, watched
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

VALUES = (
    *("<script>alert(1)</script>", "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>"),
    *("<svg/onload=alert(1)>", "<svg><script>alert(1)</script></svg>", "<body onload=alert(1)>"),
    *('"><script>alert(1)</script>', "'><script>alert(1)</script>", "--><script>alert(1)</script><!--"),
    *("</textarea><script>alert(1)</script>", "</title><script>alert(1)</script>", "</style><script>alert(1)</script>"),
    *('" onmouseover="alert(1)', "' onfocus='alert(1)' autofocus='", '" autofocus onfocus="alert(1)" x="'),
    *("javascript:alert(1)", "data:text/html,<script>alert(1)</script>", "vbscript:msgbox(1)", "JaVaScRiPt:alert(1)"),
    *("{{ 7*7 }}", "{% raw %}", "${7*7}", "#{7*7}", "<%= 7*7 %>", "{{ ''.__class__.__mro__ }}", "%(a)s", "{0}"),
    *('<div hx-get="/evil" hx-trigger="load"></div>', '<b hx-get="/evil" hx-trigger="load" hx-nonce="x">b</b>'),
    *('<p data-hx-get="/evil" data-hx-trigger="load"></p>', '<i hx-on:load="alert(1)">i</i>'),
    *('<form action="/do/purge" method="post"><button>x', '<input name="back" value="//evil.example">'),
    *('<base href="//evil.example/">', '<meta http-equiv="refresh" content="0;url=//evil.example">'),
    *('<link rel="stylesheet" href="//evil.example/x.css">', "<style>@import '//evil.example/x.css'</style>"),
    *('<iframe srcdoc="<script>parent.alert(1)</script>"></iframe>', '<object data="//evil.example"></object>'),
    *('<a href="//evil.example" ping="//evil.example">a</a>', '<img src="//evil.example/x.png">'),
    *("<template><script>alert(1)</script></template>", "<math><mtext></form><form><mglyph><style></math>"),
    *("<!--", "-->", "<![CDATA[", "]]>", "<plaintext>", "&lt;script&gt;", "&#x3c;script&#x3e;", "\\u003cscript\\u003e"),
    *(
        "\u202egnp.exe",
        "\u2066\u2069",
        "\u200b\ufeff",
        "a\u0000b",
        "\u001b[2J\u001b]0;x\u0007",
        "\u2028\u2029",
        "\x7f\x80\x9f",
    ),
    *("\ud7ff\ue000", "\U000e0041\U000e0042", "A\u0301" * 60, "\t\r\n", " ", "'", '"', "`", "\\", "../../etc/passwd"),
    *("\uff1cscript\uff1e", "x" * 900, "'; DROP TABLE jobs; --", "NaN", "-1", "\U0001f600" * 50),
)
NAMES = (
    *("t:javascript:alert", "a/../../b", "x%00y", "x%3Cscript%3E", "a//b", "a@b@c", "#fragment", "a+b=c", "x" * 255),
    *("//evil.example/x", "%F0%9F%98%80", "__proto__", "constructor", "..", "%E2%80%AE"),
)


class Unescaped(Site):
    """A console whose escaping has failed."""

    def __init__(self, options: Options) -> None:
        links = Links(options.base_path)
        super().__init__(options, Templates(options, links, Assets(links), escape=False))


async def test_there_are_many_values() -> None:
    assert len({*VALUES}) == len(VALUES) >= 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hostile(redis_server: RedisServer) -> AsyncIterator[ServiceProcess]:
    """A service that holds the values wherever it takes them."""
    async with ServiceProcess("--redis", redis_server.url, "--namespace", "hostile") as service:
        async with Client(service.url) as client:
            await _fill(client)
        yield service


async def _fill(client: Client) -> None:
    for number, value in enumerate(VALUES):
        job, short = f"v:{number}", value[:128]
        added = await client.ask(
            "add",
            topic="hostile",
            id=job,
            body={value: value, "list": [value, [[[value]]]]},
            headers={short: short} if short else {},
            tags=[short],
        )
        assert added["success"], (value, added)
        assert (await client.ask("pop", id=job, worker=short))["id"] == job
        if number % 2:
            assert (await client.ask("bury", id=job, reason=value[:1000]))["success"]
    for name in NAMES:
        added = await client.ask("add", topic=name, id=f"{name[:200]}:1", body=name, delay=600)
        assert added["success"], (name, added)
    assert (await client.ask("add", topic="large", id="large:1", body="<b>" * 80_000))["success"]
    assert (await client.ask("add", topic="large", id="large:2", body=json.loads("[" * 400 + "]" * 400)))["success"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(hostile: ServiceProcess) -> AsyncIterator[Console]:
    async with console(hostile.url) as made:
        yield made


def paths(values: Iterable[int]) -> list[str]:
    """Pages that show what others wrote, the jobs of some values among them."""
    return [
        "/",
        "/topics",
        "/dead?topic=hostile",
        *(f"/jobs?topic=hostile&state={state}" for state in ("reserved", "dead")),
        "/jobs?topic=large&state=ready",
        "/workers",
        "/actions",
        "/topic?name=hostile",
        "/lateness",
        "/instances",
        "/settings",
        "/job?id=large:1",
        "/job?id=large:2",
        *(f"/job?id=v:{number}" for number in values),
    ]


async def test_what_others_wrote_does_nothing(front: Console, browser: Browser) -> None:
    async with watched(browser, front.url) as watching:
        for path in paths(range(0, len(VALUES), 3)):
            await watching.show(path)
            assert await watching.page.locator("h1").count() == 1
            assert await watching.page.locator("main script, main iframe, main base, main [onerror]").count() == 0
        assert watching.faults == []


async def test_what_stands_in_an_address_does_nothing(front: Console, browser: Browser) -> None:
    pages = (
        *("/topics?pattern={}&cursor=", "/find?q={}", "/dead?topic=hostile&reason={}&prefix={}", "/actions?by={}"),
        *("/settings?q={}", "/lateness?topic={}&since={}", "/jobs?topic=hostile&state=dead&from={}"),
    )
    async with watched(browser, front.url) as watching:
        for number in range(0, len(VALUES) - 1, 2):
            one, other = (quote(value[:190], safe="", errors="replace") for value in VALUES[number : number + 2])
            await watching.show(pages[number // 2 % len(pages)].format(one, other))
            assert await watching.page.locator("main script, main iframe, main [onerror]").count() == 0
        assert [fault for fault in watching.faults if "status of 4" not in fault.text] == []


async def test_odd_names_lead_to_what_they_name(front: Console) -> None:
    for name in NAMES:
        response, text = await front.get(f"/topic?name={quote(name, safe='')}")
        assert response.status == 200 and "There is no topic of this name" not in text
        response, text = await front.get(f"/job?id={quote(name[:200] + ':1', safe='')}")
        assert response.status == 200 and "Run now" in text


async def test_characters_that_a_browser_obeys_are_in_no_page(front: Console) -> None:
    obeyed = {*"\u202e\u2066\u2069\u200b\ufeff\x00\x1b\x07\x7f\x80\x9f\u2028\u2029\U000e0041"}
    for path in paths(range(len(VALUES))):
        _, text = await front.get(path)
        assert obeyed.isdisjoint(text), path


async def test_no_script_runs_and_nothing_is_requested_even_if_escaping_fails(
    hostile: ServiceProcess, browser: Browser
) -> None:
    async with console(hostile.url, Unescaped) as front, watched(browser, front.url) as watching:
        injected = 0
        # A redirection in markup is no script and no request of a page: it would lead away, and here leads nowhere.
        await watching.page.route("**//evil.example/**", lambda route: route.fulfill(status=204))
        for path in paths(range(0, len(VALUES), 2)):
            await watching.show(path)
            injected += await watching.page.locator("main script, [onerror], main iframe, [hx-trigger=load]").count()
        _check_nothing_ran(watching, front)
    assert injected > 10  # it did get into the pages


def _check_nothing_ran(watching: Watched, front: Console) -> None:
    assert [fault for fault in watching.faults if fault.kind in ("dialog", "error")] == []
    asked = {url.removeprefix(front.url).partition("?")[0] for url in watching.fetched}
    assert asked <= {"/", *(f"/{name}" for name in PAGES), *(path for path in asked if path.startswith("/static/"))}
    assert [fault for fault in watching.faults if fault.kind == "request"] == []
