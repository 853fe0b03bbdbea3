"""TLS of the service's own, from outside: what clients see of a bad certificate, and what the port refuses."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from jobqueue_client import AsyncClient, Unreachable

from tests.access.secure import Secure, is_answered, secure
from tests.kit.shell import Shell
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="service")
async def one_service() -> AsyncIterator[Secure]:
    """A service with TLS, shared by the tests; each leaves it with a good certificate."""
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with secure(Path(name)) as service:
            (Path(name) / "ca.pem").write_bytes(service.files.authority.cert_pem.bytes())
            yield service


def old(service: Secure, version: ssl.TLSVersion, ciphers: str = "ALL:@SECLEVEL=0") -> ssl.SSLContext:
    """The context of a client that knows no later version, and nothing but these ciphers."""
    context = service.files.client()
    context.set_ciphers(ciphers)
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = version
    return context


@pytest.mark.parametrize(
    ("names", "days", "told"), [((), -1, "expired"), (("elsewhere.test",), 90, "Hostname mismatch")]
)
async def test_clients_tell_a_certificate_that_is_not_valid(
    service: Secure, names: tuple[str, ...], days: int, told: str
) -> None:
    url, authority = f"https://localhost:{service.port}", service.files.cert.with_name("ca.pem")
    service.files.issue(*names, days=days)
    await service.reload()
    async with AsyncClient(url, ca_file=authority, retry_for_s=0) as client:
        with pytest.raises(Unreachable, match=f"the certificate is not valid: .*{told}"):
            await client.stats()
        service.files.issue()
        await service.reload()
        await client.stats()


async def test_a_request_without_tls_is_answered_that_the_port_speaks_it(service: Secure) -> None:
    url = f"http://127.0.0.1:{service.port}"
    for method, path in (("GET", "/healthz"), ("POST", "/command")):
        async with aiohttp.ClientSession() as session, session.request(method, f"{url}{path}", data=b"{}") as response:
            assert response.status == 400
            assert await response.json() == {
                **{"success": False, "id": None, "code": "BAD_HTTP"},
                "error": "this port speaks TLS: use https://",
            }
    assert f"bad  service: {url}: this port speaks TLS: use https://" in (await Shell(url).run("check")).out


async def test_other_plain_text_gets_no_answer_and_harms_nobody(service: Secure) -> None:
    for said in (b"\0" * 3000, b"no method\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"):
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(said)
        writer.write_eof()
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            answer = await reader.read()
        assert b"HTTP" not in answer
        writer.close()

    async def are_counted() -> bool:
        return (await service.handshakes()).get("failed", 0) >= 3

    await until(are_counted)
    assert await is_answered(service, service.files.client())
    assert "Traceback" not in service.log


async def test_versions_before_the_least_one_and_weak_ciphers_are_refused(service: Secure) -> None:
    assert await is_answered(service, old(service, ssl.TLSVersion.TLSv1_2))
    assert not await is_answered(service, old(service, ssl.TLSVersion.TLSv1_1))
    for ciphers in ("eNULL", "aNULL", "RC4:3DES", "AES128-SHA"):
        with contextlib.suppress(ssl.SSLError):  # this OpenSSL has none of them
            weak = old(service, ssl.TLSVersion.TLSv1_2, f"{ciphers}:@SECLEVEL=0")
            assert not await is_answered(service, weak), ciphers


async def test_the_least_version_is_a_setting() -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with secure(Path(name), settings='tls_min = "1.3"\n') as service:
            assert await is_answered(service, service.files.client())
            assert not await is_answered(service, old(service, ssl.TLSVersion.TLSv1_2))
