"""What only the Python clients do over TLS; tests/conformance/scenario.json has whom all clients trust."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest
import trustme
from jobqueue_client import AsyncClient, Client, Unreachable

from tests.clients.access.guarded import DONE, Guarded


async def test_no_variable_turns_the_checks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    monkeypatch.setattr(ssl, "_create_default_https_context", ssl._create_unverified_context)
    with Guarded(lambda authorization, asked: DONE, context).serving() as server:
        with Client(server.url, retry_for_s=0) as client, pytest.raises(Unreachable):
            await asyncio.to_thread(client.stats)
        async with AsyncClient(server.url, retry_for_s=0) as aclient:
            with pytest.raises(Unreachable):
                await aclient.stats()
        assert server.seen == []


def test_nobody_is_asked_for_the_password_of_an_encrypted_key(tmp_path: Path) -> None:
    made = trustme.CA().issue_cert("orders.shop.test")
    made.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    lock = ["openssl", "pkey", "-aes256", "-passout", "pass:secret", "-in", "key.pem", "-out", "locked.pem"]
    subprocess.run(lock, check=True, cwd=tmp_path)
    with pytest.raises(ValueError, match=r"^cert_file and key_file cannot be used"):
        Client("https://localhost:1", cert_file=tmp_path / "cert.pem", key_file=tmp_path / "locked.pem")
