"""TLS of the console's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Browser

from jobqueue.cli.console.chosen import options_of
from jobqueue.console.tls import Certificate
from jobqueue.errors import SettingsError
from jobqueue.settings import Settings, load
from tests.acceptance.worker_processes import lines
from tests.jobqueue.access.authorities import Files
from tests.jobqueue.console.consoles import OWN, watched
from tests.kit.guarded import guarded
from tests.kit.ports import free_port
from tests.kit.waiting import until


@asynccontextmanager
async def secured(folder: Path) -> AsyncIterator[tuple[Files, int, str]]:
    """A console with a certificate: its files, its port, and a token that may sign in."""
    files, port = Files(folder), free_port()
    settings = f'console_port = {port}\nconsole_tls_cert = "{files.cert}"\nconsole_tls_key = "{files.key}"\n'
    async with guarded(folder, settings=settings) as house:
        log = folder / "service-0.log"
        await until(lambda: bool(lines(log, "console.started")))
        assert lines(log, "console.started")[0]["url"] == f"https://127.0.0.1:{port}/"
        yield files, port, (await house.token("look")).token.text


async def test_a_console_with_a_certificate_speaks_tls_only_and_its_cookie_is_for_this_host(tmp_path: Path) -> None:
    async with secured(tmp_path) as (files, port, token):
        connector = aiohttp.TCPConnector(ssl=files.client())
        async with aiohttp.ClientSession(f"https://localhost:{port}", connector=connector) as session:
            async with session.post("/sign-in", data={"token": token}, headers=OWN, allow_redirects=False) as response:
                assert response.status == 303
                cookie = response.headers["Set-Cookie"]
            assert cookie.startswith("__Host-jobqueue=") and "Secure" in cookie and "Domain" not in cookie
            async with session.get("/topics", headers={"Cookie": cookie.partition(";")[0]}) as response:
                assert response.status == 200 and response.url.path == "/topics"
                assert response.headers["Strict-Transport-Security"] == "max-age=31536000"
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://localhost:{port}/sign-in")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_browser_signs_in_by_tls(tmp_path: Path, browser: Browser) -> None:
    async with secured(tmp_path) as (_, port, token):
        home = f"https://localhost:{port}"
        async with watched(browser, home, ignore_https_errors=True) as seen:
            await seen.show("/topics")
            await seen.page.fill("#token", token)
            await seen.page.click("form.sign-in button")
            await seen.page.wait_for_url(f"{home}/topics")
            assert await seen.page.title() == "Topics · jobqueue" and seen.faults == []


async def _serial(files: Files, port: int) -> str:
    """The serial number of the certificate that a server shows now."""
    _, writer = await asyncio.open_connection("localhost", port, ssl=files.client())
    found = writer.get_extra_info("ssl_object").getpeercert()
    writer.close()
    return str(found["serialNumber"])


async def test_files_that_are_exchanged_hold_from_the_next_handshake_and_broken_ones_change_nothing(
    tmp_path: Path,
) -> None:
    files = Files(tmp_path)
    certificate = Certificate(str(files.cert), str(files.key))
    server = await asyncio.start_server(lambda _, writer: writer.close(), "localhost", 0, ssl=certificate.context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        first = await _serial(files, port)
        key = files.key.read_bytes()
        files.issue()
        new_key = files.key.read_bytes()
        files.key.write_bytes(key)  # that of before: it does not go with the new certificate
        certificate.tick()
        assert await _serial(files, port) == first
        files.key.write_bytes(new_key)
        certificate.tick()
        second = await _serial(files, port)
        assert second != first
        files.cert.unlink()
        certificate.tick()
        assert await _serial(files, port) == second


def test_files_that_do_not_load_are_refused_by_name(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.key.write_text("nonsense")
    for cert, said in ((str(files.cert), "cannot be used"), ("/nowhere", "cannot be read: No such file")):
        settings = Settings(console_tls_cert=cert, console_tls_key=str(files.key))
        with pytest.raises(SettingsError, match=f"console_tls_cert and console_tls_key: .*{said}"):
            options_of(settings, "http://127.0.0.1", 1)
    with pytest.raises(SettingsError, match="console_tls_cert and console_tls_key go together"):
        load({}, None, {"JOBQUEUE_CONSOLE_TLS_CERT": "/c"})
