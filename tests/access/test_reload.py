"""The certificate and the authority of clients are exchanged while fifty connections ask all the time: whoever is
valid notices nothing, and who is not valid any more does not come in.

TEST_TLS_RATE is the number of requests a second.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trustme

from jobqueue.access.tls import Tls
from jobqueue.metrics.process import Metrics
from tests.access.secure import Link, Secure, is_answered, secure
from tests.jobqueue.access.authorities import Files
from tests.kit.waiting import until

RATE = int(os.environ.get("TEST_TLS_RATE", "150"))
CONNECTIONS = 50
BETWEEN_S = 0.5  # two reloads


class Callers:
    """Valid clients, which keep their connections, and others that make a new one for each request."""

    def __init__(self, service: Secure, context: ssl.SSLContext) -> None:
        self.service = service
        self.context = context
        """With which connections are made from now on."""
        self.answers = 0
        self.again = 0
        """Requests that were sent once more, as their connection had been closed before."""
        self.faults: list[BaseException] = []
        self._is_over = False

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        begun = time.monotonic()
        tasks = [asyncio.create_task(self._call(each, keeps=each % 10 > 0)) for each in range(CONNECTIONS)]
        await until(lambda: self.answers > 2 * CONNECTIONS)
        try:
            yield
        finally:
            self._is_over = True
            await asyncio.gather(*tasks)
        print(f"{self.answers / (time.monotonic() - begun):.0f} requests a second, {self.again} of them sent again")

    async def some_more(self) -> None:
        """Wait until all have asked a few times more."""
        wanted = self.answers + max(2 * CONNECTIONS, RATE * BETWEEN_S)
        await until(lambda: self.answers >= wanted, within_s=30)

    async def _call(self, number: int, *, keeps: bool) -> None:
        link: Link | None = None
        due = time.monotonic() + number / RATE
        while not self._is_over:
            await asyncio.sleep(due - time.monotonic())
            due += CONNECTIONS / RATE
            link = await self._ask(link)
            if not keeps and link:
                link.close()
                link = None
        if link:
            link.close()

    async def _ask(self, link: Link | None) -> Link | None:
        """Ask until there is an answer: the service may close a connection at any time between two requests."""
        while True:
            try:
                link = link or await self.service.connect(self.context)
            except OSError as error:
                self.faults.append(error)
                return None
            try:
                await link.ask()
            except ssl.SSLError as error:
                link.close()
                self.faults.append(error)
                return None
            except (OSError, EOFError):
                link.close()
                link = None
                if self._is_over:
                    return None
                self.again += 1
            else:
                self.answers += 1
                return link


class Strangers:
    """Clients that try to come in all the time, one after the other."""

    def __init__(self, service: Secure, context: ssl.SSLContext) -> None:
        self._service, self._context = service, context
        self.tried = 0
        self.answered = 0

    @asynccontextmanager
    async def trying(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._try())
        try:
            yield
            await until(lambda: self.tried >= 10)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _try(self) -> None:
        while True:
            self.answered += await is_answered(self._service, self._context)
            self.tried += 1
            await asyncio.sleep(0.02)


async def test_a_reload_fails_no_handshake_of_the_valid_and_takes_none_of_the_invalid() -> None:
    before, after, other = trustme.CA(), trustme.CA(), trustme.CA()
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with secure(Path(name), before) as service:
            files = service.files
            of_before, of_after = files.client(before), files.client(after)
            callers = Callers(service, of_before)
            strangers = Strangers(service, files.client(other))
            async with callers.calling(), strangers.trying():
                first = await serial(service, of_before)
                files.issue()
                await service.reload()
                await callers.some_more()
                second = await serial(service, of_before)
                assert second != first
                assert not await is_answered(service, of_after)

                files.client_ca.write_bytes(before.cert_pem.bytes() + after.cert_pem.bytes())
                await service.reload()
                callers.context = of_after
                await callers.some_more()
                assert await is_answered(service, of_before)

                files.trust(after)
                await service.reload()
                earlier = Strangers(service, of_before)
                async with earlier.trying():
                    await callers.some_more()
                assert not earlier.answered
            assert not callers.faults
            assert not strangers.answered
            told = await service.handshakes()
            assert told["ok"] > CONNECTIONS
            assert told["certificate"] >= strangers.tried + earlier.tried


async def test_files_that_do_not_load_change_nothing_and_are_logged() -> None:
    clients = trustme.CA()
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with secure(Path(name), clients) as service:
            files, context = service.files, service.files.client(clients)
            stranger = files.client(trustme.CA())
            callers = Callers(service, context)
            first = await serial(service, context)
            async with callers.calling():
                for file in (files.cert, files.key, files.client_ca):
                    good = file.read_bytes()
                    for bad in (b"", b"no certificate", good[: len(good) // 2], other_key(file)):
                        file.write_bytes(bad)
                        await service.reload("tls.refused")
                    file.unlink()
                    await service.reload("tls.refused")
                    file.write_bytes(good)
                    assert await serial(service, context) == first
                    assert not await is_answered(service, stranger)
                await callers.some_more()
            assert not callers.faults
            assert not callers.again  # no connection was closed
            files.issue()
            await service.reload()
            assert await serial(service, context) != first


async def test_authorities_that_are_being_written_are_read_when_they_have_come_to_rest(tmp_path: Path) -> None:
    files = Files(tmp_path, clients=trustme.CA())
    one, other = (trustme.CA().cert_pem.bytes() for _ in range(2))
    tls = Tls(files.settings, Metrics())
    before = tls.context
    assert tls.tick() > 1
    files.client_ca.write_bytes(one)
    assert tls.tick() == 1
    files.client_ca.write_bytes(one + other)
    assert tls.tick() == 1 and tls.context is before
    assert tls.tick() > 1 and len(tls.context.get_ca_certs()) == 2


def other_key(file: Path) -> bytes:
    """What belongs to none of the other files, or is none of its kind."""
    made = trustme.CA().issue_cert("localhost")
    return made.cert_chain_pems[0].bytes() if file.name == "cert.pem" else made.private_key_pem.bytes()


async def serial(service: Secure, context: ssl.SSLContext) -> str:
    """The number of the certificate that every worker shows: each gets some of the connections."""
    links = [await service.connect(context) for _ in range(20)]
    numbers = {link.serial for link in links}
    for link in links:
        link.close()
    (number,) = numbers
    return number
