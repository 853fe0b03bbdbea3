"""The Python clients over TLS: whom they trust, and whom they are."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from jobqueue_client import AsyncClient, Client, Unreachable

from tests.clients.access.guarded import DONE, Guarded


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority `ca.pem`, another one `other.pem`, and a client's `cert.pem`, `key.pem` and `both.pem`."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    client = authority.issue_cert("orders.shop.test")
    client.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    client.private_key_pem.write_to_path(folder / "key.pem")
    client.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    authority.issue_cert("elsewhere.test").private_key_and_cert_chain_pem.write_to_path(folder / "elsewhere.pem")
    (folder / "empty.pem").write_text("no certificate")
    return folder


def context(files: Path, certificate: str) -> ssl.SSLContext:
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(files / certificate)
    return made


@pytest.fixture
def server(files: Path) -> Iterator[Guarded]:
    """A service that wants a client certificate of the authority."""
    made = context(files, "server.pem")
    made.load_verify_locations(files / "ca.pem")
    made.verify_mode = ssl.CERT_REQUIRED
    made.maximum_version = ssl.TLSVersion.TLSv1_2  # in 1.3 a client learns of its refusal only when it reads
    with Guarded(lambda authorization, asked: DONE, made).serving() as serving:
        yield serving


async def ask_in_both_ways(url: str, **options: Any) -> None:
    with Client(url, retry_for_s=0, **options) as client:
        await asyncio.to_thread(client.stats)
    async with AsyncClient(url, retry_for_s=0, **options) as aclient:
        await aclient.stats()


async def why_not(url: str, **options: Any) -> list[str]:
    """The errors of both."""
    said = []
    with Client(url, retry_for_s=0, **options) as client, pytest.raises(Unreachable) as sync:
        await asyncio.to_thread(client.stats)
    said.append(str(sync.value))
    async with AsyncClient(url, retry_for_s=0, **options) as aclient:
        with pytest.raises(Unreachable) as raised:
            await aclient.stats()
    return [*said, str(raised.value)]


@pytest.mark.parametrize("own", [{"cert_file": "cert.pem", "key_file": "key.pem"}, {"cert_file": "both.pem"}])
async def test_a_service_with_a_private_authority_takes_a_client_with_its_certificate(
    server: Guarded, files: Path, own: dict[str, str]
) -> None:
    given = {name: files / file for name, file in own.items()}
    await ask_in_both_ways(server.url, ca_file=files / "ca.pem", **given)
    assert len(server.seen) == 2


async def test_a_client_without_a_certificate_is_turned_away(server: Guarded, files: Path) -> None:
    assert len(await why_not(server.url, ca_file=files / "ca.pem")) == 2
    assert server.seen == []


@pytest.mark.parametrize("options", [{}, {"ca_file": "other.pem"}])
async def test_a_certificate_of_another_authority_is_not_trusted(files: Path, options: dict[str, str]) -> None:
    given = {name: files / file for name, file in options.items()}
    with Guarded(lambda authorization, asked: DONE, context(files, "server.pem")).serving() as server:
        for sentence in await why_not(server.url, **given):
            assert ": the certificate is not trusted (unable to get local issuer certificate): ca_file" in sentence
        assert server.seen == []


async def test_a_port_that_does_not_speak_tls_is_recognised() -> None:
    with Guarded(lambda authorization, asked: DONE).serving() as server:
        for sentence in await why_not(server.url.replace("http:", "https:")):
            assert sentence.endswith(": this port does not speak TLS: use http://")


async def test_a_port_that_speaks_tls_is_recognised(files: Path, server: Guarded) -> None:
    with Guarded(lambda authorization, asked: DONE, context(files, "server.pem")).serving() as other:
        for tls in (server, other):  # one wants a certificate, and breaks the handshake off
            for sentence in await why_not(tls.url.replace("https:", "http:")):
                assert sentence.endswith(": this port speaks TLS: use https://")


async def test_a_certificate_of_another_host_is_not_trusted(files: Path) -> None:
    with Guarded(lambda authorization, asked: DONE, context(files, "elsewhere.pem")).serving() as server:
        for sentence in await why_not(server.url, ca_file=files / "ca.pem"):
            assert "the certificate is not valid: Hostname mismatch" in sentence and "ca_file" not in sentence
        assert server.seen == []


async def test_no_variable_turns_the_checks_off(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "_create_default_https_context", ssl._create_unverified_context)
    with Guarded(lambda authorization, asked: DONE, context(files, "server.pem")).serving() as server:
        await why_not(server.url)
        assert server.seen == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ca_file": "none.pem"}, "^ca_file cannot be used: No such file"),
        ({"ca_file": "empty.pem"}, "^ca_file cannot be used"),
        ({"cert_file": "none.pem"}, "^cert_file cannot be used: No such file"),
        ({"cert_file": "cert.pem"}, "^cert_file cannot be used"),
        ({"cert_file": "both.pem", "key_file": "empty.pem"}, "^cert_file and key_file cannot be used"),
        ({"cert_file": "cert.pem", "key_file": "server.pem"}, "KEY_VALUES_MISMATCH"),
        ({"key_file": "key.pem"}, "^key_file needs cert_file"),
    ],
)
def test_a_file_that_is_of_no_use_is_an_error_that_names_the_option(
    files: Path, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        Client("https://localhost:1", **{name: files / file for name, file in options.items()})  # type: ignore[arg-type]


def test_certificates_are_for_https_only(files: Path) -> None:
    with pytest.raises(ValueError, match=r"^ca_file is for https URLs"):
        Client("http://localhost:1", ca_file=files / "ca.pem")
    Client(urls=["http://localhost:1", "https://localhost:2"], ca_file=files / "ca.pem").close()


def test_nobody_is_asked_for_the_password_of_an_encrypted_key(files: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    lock = ["openssl", "pkey", "-aes256", "-passout", "pass:secret", "-in", str(files / "key.pem"), "-out", str(locked)]
    subprocess.run(lock, check=True)
    with pytest.raises(ValueError, match=r"^cert_file and key_file cannot be used"):
        Client("https://localhost:1", cert_file=files / "cert.pem", key_file=locked)
