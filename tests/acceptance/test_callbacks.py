"""`jobqueue callbacks` from outside: a real service, a real worker, and receivers that answer well and badly."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from tests.acceptance import receiver
from tests.acceptance.receiver import Receiver, status
from tests.kit import forked
from tests.kit.service import Client
from tests.kit.shell import Shell, environment
from tests.kit.waiting import until

LOOPBACK = "--allow-network=127.0.0.0/8"
REFUSED = "the address of the host is not allowed (see --allow-network)"
OLD, NEW = ("whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))


class Callbacks:
    """`jobqueue callbacks --topic t` as a process. `async with`."""

    def __init__(self, client: Client, log: Path, *flags: str, **variables: str) -> None:
        self._arguments = ["callbacks", "--topic", "t", *flags]
        self._environment = environment(client.url) | variables
        self._log = log

    async def __aenter__(self) -> Callbacks:
        with self._log.open("ab") as output:
            self.process = await forked.started(self._arguments, self._environment, stdout=output, stderr=output)
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            return await self.process.wait()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def text(self) -> str:
        """Everything that it logged."""
        return self._log.read_text()

    def of(self, job: str) -> list[dict[str, Any]]:
        """What was logged about the calls of a job."""
        return [event for event in self.events if event.get("id") == job]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "callbacks.log"


@pytest.fixture
async def shop() -> AsyncIterator[Receiver]:
    """A receiver of callbacks."""
    async with Receiver() as shop:
        yield shop


async def add(
    client: Client, job: str, url: str, tries: int = 16, backoff: tuple[float, ...] = (600,), **body: Any
) -> None:
    """A job in the topic t; its back-off is long, so that it stays where its first call brought it."""
    body = {"url": url, **body}
    answer = await client.ask("add", topic="t", id=job, body=body, tries=tries, backoff=backoff or None)
    assert answer["success"], answer


async def ended(client: Client, *jobs: str) -> dict[str, dict[str, Any]]:
    """The jobs after a call."""
    found: dict[str, dict[str, Any]] = {}

    async def all_called() -> bool:
        answers = await client.batch([{"command": "get", "id": job} for job in jobs])
        found.update(zip(jobs, answers, strict=True))
        return all(each["state"] in ("finished", "dead") or each.get("reason") for each in answers)

    await until(all_called)
    return found


async def in_plain_text(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speaks no TLS."""
    await reader.read(100)
    writer.write(status(400))
    writer.close()


async def redirect_late(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(1.5)
    writer.write(status(307, "Location: /late"))


async def test_the_answer_says_what_becomes_of_the_job(client: Client, shop: Receiver, log: Path) -> None:
    redirect = status(307, f"Location: {shop.at('/moved', status(201))}?a=1")
    async with Receiver() as short_lived:
        closed = short_lived.at("/x", b"")
    plain = await asyncio.start_server(in_plain_text, "127.0.0.1", 0)
    urls = {
        "ok": shop.at("/ok", status(299)),
        "again": shop.at("/503", status(503)),
        "told-when": shop.at("/429", status(429, "Retry-After: 120")),
        "told-too-long": shop.at("/busy", status(503, "Retry-After: 999999")),
        "gone": shop.at("/410", status(410)),
        "not-yet": shop.at("/404", status(404, "Retry-After: 60")),
        "307": shop.at("/307", redirect),
        "302": shop.at("/302", status(302, "Location: /moved")),
        "loop": shop.at("/loop", status(308, "Location: /loop")),
        "nowhere": shop.at("/nowhere", status(308)),
        "to-file": shop.at("/to-file", status(308, "Location: file:///etc/passwd")),
        "closed": closed,
        "no-tls": f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}/",
        "no-name": "http://no-such-name.invalid/",
        "hang": shop.at("/hang", receiver.hang),
        "hang-up": shop.at("/hang-up", receiver.hang_up),
        "break-off": shop.at("/break-off", receiver.break_off),
        "break-off-late": shop.at("/break-off-late", receiver.break_off_late),
        "never-end": shop.at("/never-end", receiver.never_end),
        "late": shop.at("/late", receiver.answer_late),
        "late-in-all": shop.at("/late-in-all", redirect_late),
        "dribble": shop.at("/dribble", receiver.dribble),
        "head": shop.at("/head", receiver.head_without_end),
        "hints": shop.at("/hints", receiver.early_hints),
    }
    for job, url in urls.items():
        await add(client, job, url, payload={"order": 1})
    await add(client, "got-302", shop.url + "/302", method="GET")
    await client.ask("add", topic="t", id="no-callback", body={"uri": "http://a/"})
    # A proxy would connect for the worker, past its guard.
    async with Callbacks(client, log, LOOPBACK, "--timeout=3", "--per-host=40", http_proxy=closed) as worker:
        began = time.time()
        jobs = await ended(client, *urls, "got-302", "no-callback")
        assert await worker.stop() == 0
    plain.close()
    finished = {"ok", "307", "got-302", "break-off-late", "never-end", "dribble", "late"}
    assert {job for job, told in jobs.items() if told["state"] == "finished"} == finished
    assert {job: told["reason"] for job, told in jobs.items() if told["state"] == "dead"} == {
        "gone": "HTTP 410",
        "302": "redirected with 302: a POST is not followed",
        "loop": "redirected more than 3 times",
        "nowhere": "redirected with 308 to nowhere",
        "to-file": "redirected with 308 to something that is not an http or https URL",
        "no-callback": "unknown field 'uri'; did you mean url?",
    }
    delayed = {job: told["reason"] for job, told in jobs.items() if told["state"] == "delayed"}
    assert delayed == {
        "again": "HTTP 503",
        "told-when": "HTTP 429",
        "told-too-long": "HTTP 503",
        "not-yet": "HTTP 404",
        "closed": "no connection: connection refused",
        "no-tls": "TLS failed",
        "no-name": "the name of the host was not found",
        "hang": "timed out after 3 s",
        "late-in-all": "timed out after 3 s",
        "hang-up": "the connection broke before the answer",
        "break-off": "the connection broke before the answer",
        "head": "the answer is not HTTP",
        "hints": "timed out after 3 s",
    }
    delays = {"told-when": 120, "told-too-long": 86_400, "not-yet": 60}
    for job in delayed:
        assert delays.get(job, 600) <= jobs[job]["until"] - began < delays.get(job, 600) + 15, job
    assert [request.path for request in shop.of("307")] == ["/307", "/moved?a=1"]
    assert [request.body for request in shop.of("307")] == [b'{"order":1}'] * 2
    assert len(shop.of("loop")) == 4


async def test_a_job_without_a_back_off_is_called_again_after_pauses_that_grow(
    client: Client, shop: Receiver, log: Path
) -> None:
    await add(client, "a", shop.at("/500", status(500)), tries=3, backoff=())
    async with Callbacks(client, log, LOOPBACK) as worker:
        await until(lambda: len(shop.of("a")) == 3)

        async def dead() -> bool:
            told = await client.ask("get", id="a")
            return (told["state"], told.get("cause"), told["reason"]) == ("dead", "tries", "HTTP 500")

        await until(dead)
        first, second, third = (event for event in worker.of("a") if event["event"] == "callback.failed")
    assert [event["attempt"] for event in (first, second, third)] == [1, 2, 3]
    assert [request.headers["jobqueue-attempt"] for request in shop.of("a")] == ["1", "2", "3"]
    times = [datetime.fromisoformat(event["time"]).timestamp() for event in (first, second, third)]
    assert times[1] - times[0] >= 1 and times[2] - times[1] >= 2


async def test_a_kept_connection_that_the_host_closes_costs_no_try(client: Client, shop: Receiver, log: Path) -> None:
    shop.at("/", receiver.close_unsaid)
    jobs = [f"job:{number}" for number in range(100)]
    for job in jobs:
        await add(client, job, shop.url + "/", tries=1)
    async with Callbacks(client, log, LOOPBACK, "--concurrency=20", "--per-host=10"):
        assert {told["state"] for told in (await ended(client, *jobs)).values()} == {"finished"}


async def test_a_request_is_as_the_body_says_and_both_secrets_sign_it(
    client: Client, shop: Receiver, log: Path, tmp_path: Path
) -> None:
    await add(
        client,
        "order:1.5",
        shop.at("/paid", status(200)) + "?token=hunter2#top",
        method="PUT",
        headers={"X-Key": "hunter3", "Content-Type": "application/vnd.shop+json"},
        payload={"text": "hunter4 ä"},
    )
    await add(client, "bare", shop.url + "/paid")
    secrets = tmp_path / "secrets"
    secrets.write_text(f"{NEW}\n{OLD}\n")
    async with Callbacks(client, log, LOOPBACK, f"--secret-file={secrets}") as worker:
        await ended(client, "order:1.5", "bare")
        assert await worker.stop() == 0
        event = worker.of("order:1.5")[-1]
    (request,), (bare,) = shop.of("order:1%2E5"), shop.of("bare")
    assert (request.method, request.path) == ("PUT", "/paid?token=hunter2")
    assert (request.headers["x-key"], request.headers["content-type"]) == ("hunter3", "application/vnd.shop+json")
    assert (request.headers["jobqueue-topic"], request.headers["jobqueue-attempt"]) == ("t", "1")
    assert abs(float(request.headers["jobqueue-due"]) - time.time()) < 60
    for secret in (NEW, OLD):
        assert Webhook(secret).verify(request.body, request.headers) == {"text": "hunter4 ä"}
        Webhook(secret).verify(bare.body, bare.headers, json_parse=False)
    assert (bare.method, bare.body, bare.headers.get("content-type")) == ("POST", b"", None)
    assert event.items() >= {"event": "callback.called", "topic": "t", "host": "127.0.0.1", "status": 200}.items()
    assert {"seconds", "attempt", "late_s"} <= event.keys()
    assert "hunter" not in worker.text
    assert "whsec" not in worker.text


async def test_a_request_has_the_trace_of_its_job_unless_it_has_its_own(
    client: Client, shop: Receiver, log: Path
) -> None:
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "vendor=1"}
    own = {"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    bodies = {
        "traced": ({"url": shop.at("/", status(200))}, trace),
        "own": ({"url": shop.url + "/", "headers": own}, trace),
        "invalid": ({"url": shop.url + "/"}, {"traceparent": "nonsense\r\n", "tracestate": "x"}),
    }
    for name, (body, headers) in bodies.items():
        await client.ask("add", topic="t", id=name, body=body, headers=headers)
    async with Callbacks(client, log, LOOPBACK) as worker:
        await ended(client, *bodies)
        assert worker.of("traced")[-1]["trace_id"] == trace["traceparent"][3:35]
    sent = [{name: each.headers.get(name) for name in trace} for each in (shop.of(job)[0] for job in bodies)]
    assert sent == [trace, {"traceparent": own["Traceparent"], "tracestate": None}, dict.fromkeys(trace)]


async def test_a_bad_secret_or_option_is_refused_at_the_start_without_showing_it(
    client: Client, tmp_path: Path, log: Path
) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("whsec_hunter2")
    wrong = {
        f"--secret-file={secrets}": f"{secrets}: secret 1 must be whsec_ and 24 to 64 bytes in base64",
        "--allow-network=10.0.0.1/8": "'10.0.0.1/8' is not a network such as 10.1.0.0/16",
        "--url=ftp://a": "url must be a service",
    }
    for flag, words in wrong.items():
        ran = await Shell(client.url).run("callbacks", "--topic", "t", flag)
        assert (ran.code, words in ran.err, "hunter2" in ran.err) == (2, True, False), ran
    async with Callbacks(client, log, JOBQUEUE_CALLBACK_SECRET="whsec_hunter2") as worker:  # noqa: S106
        assert await worker.process.wait() == 2
    assert "JOBQUEUE_CALLBACK_SECRET: secret 1 must be" in worker.text
    assert "hunter2" not in worker.text


async def test_each_topic_may_have_a_secret_of_its_own_and_all_may_come_from_files(
    client: Client, shop: Receiver, tmp_path: Path, log: Path
) -> None:
    shop.at("/", status(200))
    for name, secret in (("all", OLD), ("own", NEW)):
        (tmp_path / name).write_text(f"{secret}\n")
    for topic in ("t", "u"):
        await client.ask("add", topic=topic, id=topic, body={"url": f"{shop.url}/", "payload": 1})
    own = ("--topic", "u", "--topic-secret-file", "u", f"{tmp_path}/own")
    async with Callbacks(client, log, LOOPBACK, *own, JOBQUEUE_CALLBACK_SECRET_FILE=f"{tmp_path}/all"):
        await ended(client, "t", "u")
    for topic, secret, other in (("t", OLD, NEW), ("u", NEW, OLD)):
        (request,) = shop.of(topic)
        assert Webhook(secret).verify(request.body, request.headers) == 1
        with pytest.raises(WebhookVerificationError):
            Webhook(other).verify(request.body, request.headers)


async def test_secrets_that_contradict_each_other_are_refused(client: Client, tmp_path: Path, log: Path) -> None:
    (tmp_path / "s").write_text(NEW)
    named = str(tmp_path / "s")
    wrong: dict[str, list[str]] = {
        "u is not among the topics of --topic": ["--topic-secret-file", "u", named],
        "t has two files": ["--topic-secret-file", "t", named, "--topic-secret-file", "t", named],
        "/nowhere cannot be read: No such file or directory": ["--topic-secret-file", "t", "/nowhere"],
        "'sh[o]p' is not a name such as": ["--allow-host", "sh[o]p"],
        "--allow-port": ["--allow-port", "0"],
    }
    for words, flags in wrong.items():
        ran = await Shell(client.url).run("callbacks", "--topic", "t", *flags)
        assert (ran.code, words in ran.err, "whsec" in ran.err) == (2, True, False), ran
    both = {"JOBQUEUE_CALLBACK_SECRET": NEW, "JOBQUEUE_CALLBACK_SECRET_FILE": named}
    async with Callbacks(client, log, **both) as worker:
        assert await worker.process.wait() == 2
    assert "JOBQUEUE_CALLBACK_SECRET and JOBQUEUE_CALLBACK_SECRET_FILE exclude each other" in worker.text


async def test_only_the_hosts_and_ports_that_are_listed_are_called_not_by_a_redirect_either(
    client: Client, shop: Receiver, log: Path
) -> None:
    async with Receiver() as other:
        shop.at("/", status(200))
        shop.at("/host", status(307, f"Location: http://localhost:{shop.port}/"))
        shop.at("/port", status(307, f"Location: {other.at('/', status(200))}"))
        await add(client, "right", f"{shop.url}/")
        for name in ("host", "port"):
            await add(client, name, f"{shop.url}/{name}")
        await add(client, "name", f"http://localhost:{shop.port}/")
        async with Callbacks(client, log, LOOPBACK, "--allow-host=127.0.0.?", f"--allow-port={shop.port}"):
            jobs = await ended(client, "right", "host", "port", "name")
        assert other.connections == 0
    assert jobs["right"]["state"] == "finished"
    host, port = "the host is not allowed (see --allow-host)", "the port is not allowed (see --allow-port)"
    assert {name: job["reason"] for name, job in jobs.items() if name != "right"} == {
        **{"host": host, "port": port, "name": host}
    }


async def test_a_topic_that_cannot_be_ends_with_a_sentence(client: Client) -> None:
    ran = await Shell(client.url).run("callbacks", "--topic", "no topic")
    assert ran.code == 1
    assert "topic" in ran.err and "Traceback" not in ran.err


async def test_nothing_private_is_called_however_it_is_spelled(client: Client, shop: Receiver, log: Path) -> None:
    port = shop.port
    hosts = [
        *("127.0.0.1", "127.1", "2130706433", "0x7f.1", "0x7f000001", "0177.0.0.1", "017700000001", "127.0.0.1."),
        *("localhost", "LOCALHOST", "localhost.", "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]"),  # noqa: S104
        *("[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]", "[::1%25lo]", "[::127.0.0.1]"),
        *("①②⑦.⓪.⓪.①", "１２７.0.0.1", "127。0。0。1", "ｌｏｃａｌｈｏｓｔ", "%31%32%37.0.0.1", "127.0.0.1%00.example"),  # noqa: RUF001
        *("169.254.169.254", "127.0.0.01", "127.0.0.1..", "[0:0:0:0:0:ffff:127.0.0.1]"),
    ]
    shop.at("/", status(200))
    for number, host in enumerate(hosts):
        await add(client, f"job:{number}", f"http://{host}:{port}/", backoff=(600,))
    async with Callbacks(client, log, "--timeout=5"):
        jobs = await ended(client, *(f"job:{number}" for number in range(len(hosts))))
    assert shop.connections == 0
    reasons = {host: (told["state"], told["reason"]) for host, told in zip(hosts, jobs.values(), strict=True)}
    refused = REFUSED
    spelled = "url must have a host that is a name, or an address in its usual spelling"
    parsed = "url must be an http or https URL with a host, without spaces and control characters"
    for host, (state, reason) in reasons.items():
        # What this machine's resolver does not know is no address of it.
        assert reason in (refused, spelled, parsed, "the name of the host was not found"), (host, reason)
        assert state == ("delayed" if "not found" in reason else "dead"), host
    for host in ("127.0.0.1", "0x7f.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"):  # noqa: S104
        assert reasons[host] == ("dead", refused), host


async def test_a_redirect_leads_to_no_address_that_is_not_allowed_and_takes_no_credentials_along(
    client: Client, shop: Receiver, log: Path
) -> None:
    async with Receiver("127.0.0.2") as inner, Receiver() as other:
        for name, receiver_ in (("in", inner), ("out", other)):
            shop.at(f"/{name}", status(307, f"Location: {receiver_.at('/x', status(200))}"))
        shop.at("/chain", status(307, "Location: /chain2"))
        shop.at("/chain2", status(302, f"Location: //0x7f.2:{inner.port}/x"))
        shop.at("/user", status(307, f"Location: http://a:b@127.0.0.1:{other.port}/x"))
        headers = {"Authorization": "Bearer x", "Cookie": "a=b", "X-Api-Key": "c", "Content-Type": "text/x"}
        for name in ("in", "out", "user"):
            await add(client, name, f"{shop.url}/{name}", headers=headers, payload=1)
        await add(client, "chain", f"{shop.url}/chain", method="GET")
        async with Callbacks(client, log, "--allow-network=127.0.0.1/32", JOBQUEUE_CALLBACK_SECRET=NEW):
            jobs = await ended(client, "in", "out", "chain", "user")
        assert inner.connections == 0
        for name in ("in", "chain"):
            assert (jobs[name]["state"], jobs[name]["reason"]) == ("dead", REFUSED)
        assert jobs["user"]["reason"] == "redirected with 307 to something that is not an http or https URL"
        (request,) = other.of("out")
        assert not {"authorization", "cookie", "x-api-key"} & request.headers.keys()
        assert request.headers["content-type"] == "text/x"
        assert Webhook(NEW).verify(request.body, request.headers) == 1


async def test_a_host_that_hangs_keeps_no_other_from_being_called(client: Client, shop: Receiver, log: Path) -> None:
    """The jobs of the slow host come first, and there are more of them than the worker can run at a time."""
    async with Receiver("127.0.0.2") as slow:
        slow.at("/", receiver.hang)
        shop.at("/", status(200))
        for number in range(60):
            await add(client, f"slow:{number}", slow.url + "/")
        for number in range(200):
            await add(client, f"quick:{number}", shop.url + "/")
        async with Callbacks(client, log, LOOPBACK, "--timeout=60", "--concurrency=12", "--per-host=4") as worker:
            await until(lambda: len(shop.requests) == 200)
            assert slow.most_hanging == 4
            assert len({request.id for request in slow.requests}) == 4

            async def put_back() -> bool:
                told = await client.ask("get", id="slow:59")
                return (told["state"], told["attempt"], told.get("reason")) == ("delayed", 0, None)

            await until(put_back)
            deliveries = (await client.ask("stats", topic="t"))["totals"]["delivered"]
            assert deliveries < 260 + 100  # they do not go round and round
            worker.process.kill()


async def test_a_job_that_cannot_go_back_waits_for_its_host_and_is_not_lost(
    client: Client, shop: Receiver, log: Path
) -> None:
    async def slowly(writer: asyncio.StreamWriter) -> None:  # it closes its connections without saying so
        await asyncio.sleep(0.05)
        writer.write(status(503))

    url = shop.at("/", slowly)
    for number in range(6):
        await client.ask("add", topic="t", id=f"once:{number}", body={"url": url}, ttr=0)
    async with Callbacks(client, log, LOOPBACK, "--concurrency=2", "--per-host=1") as worker:
        await until(lambda: len({request.id for request in shop.requests}) == 6)
        assert await worker.stop() == 0
    assert len(shop.requests) == 6


async def test_sigterm_lets_a_request_end_and_a_killed_worker_loses_none(
    client: Client, shop: Receiver, log: Path
) -> None:
    answer = asyncio.Event()

    async def when_told(writer: asyncio.StreamWriter) -> None:
        await answer.wait()
        writer.write(status(200))

    await client.ask("add", topic="t", id="killed", body={"url": shop.at("/", when_told)}, ttr=1)
    async with Callbacks(client, log, LOOPBACK) as worker:
        await until(lambda: len(shop.of("killed")) == 1)
        worker.process.kill()
        await worker.process.wait()
    async with Callbacks(client, log, LOOPBACK) as worker:
        await until(lambda: len(shop.of("killed")) == 2)
        worker.process.send_signal(signal.SIGTERM)
        await until(lambda: any(event["event"] == "worker.stopping" for event in worker.events))
        answer.set()
        async with asyncio.timeout(20):
            assert await worker.process.wait() == 0
    assert (await client.ask("get", id="killed"))["state"] == "finished"


async def test_a_second_signal_gives_back_what_is_being_called(client: Client, shop: Receiver, log: Path) -> None:
    await add(client, "a", shop.at("/", receiver.hang))
    async with Callbacks(client, log, LOOPBACK) as worker:
        await until(lambda: len(shop.of("a")) == 1)
        worker.process.send_signal(signal.SIGTERM)
        await until(lambda: any(event["event"] == "worker.stopping" for event in worker.events))
        assert await worker.stop() == 1
    assert (await client.ask("get", id="a"))["state"] == "ready"
