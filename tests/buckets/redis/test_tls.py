"""buckets.redis.client over TLS: with a private certificate authority, client certificates and an ACL user."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from buckets.errors import Unavailable
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.redis.url import read_url
from tests.buckets.jobs import add, popped_ids
from tests.kit.ports import free_port
from tests.kit.redis_node import Access, RedisNode, Tls
from tests.kit.redis_server import binary, knows_tls

ACCESS = Access("queue", "secret")


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[RedisNode]:
    """A server that only speaks TLS, and only admits a user with a password and a client certificate."""
    server = binary()
    if not knows_tls(server):
        pytest.skip("no Redis at hand was built with TLS")
    node = RedisNode(tmp_path / "node", free_port(), ["save ''"], ACCESS, tls=Tls(tmp_path / "tls"), server=server)
    await node.start()
    yield node
    node.kill()


async def trouble_at(url: str) -> str:
    """Why nothing can connect."""
    redis = Redis(url, timeout_s=2.0)
    with pytest.raises(Unavailable):
        await redis.read("PING")
    await redis.close()
    return redis.trouble


async def test_a_client_with_a_certificate_trusts_its_own_authority(secure: RedisNode) -> None:
    redis = Redis(secure.url)
    pool = await Pool.open(redis)
    heard: list[str] = []
    connected = asyncio.Event()
    listening = asyncio.create_task(redis.listen(pool.keys[0].bell, heard.append, connected.set))
    await connected.wait()
    await redis.read("SPUBLISH", pool.keys[0].bell, "rung")
    await add(pool, "a", body=b"x" * 3_000_000)
    assert await popped_ids(pool) == ["a"]
    assert heard[0] == "rung"
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await redis.close()


async def test_a_client_without_a_certificate_is_turned_away(secure: RedisNode, tmp_path: Path) -> None:
    for url in (f"rediss://localhost:{secure.port}?ssl_ca_certs={tmp_path}/tls/ca.pem", f"redis://{secure.address}"):
        assert await trouble_at(url)


@pytest.mark.parametrize("names_another", [False, True])
async def test_a_certificate_of_another_authority_is_not_trusted(
    secure: RedisNode, tmp_path: Path, names_another: bool
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    parameters = f"?ssl_ca_certs={tmp_path}/other.pem" if names_another else ""
    assert "certificate verify failed" in await trouble_at(f"rediss://{secure.address}{parameters}")


async def test_the_authorities_of_the_system_do_not_count_beside_ones_own(
    secure: RedisNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", f"{tmp_path}/tls/ca.pem")  # what OpenSSL takes for the system's
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    url = secure.url.replace(f"{tmp_path}/tls/ca.pem", f"{tmp_path}/other.pem")
    assert "certificate verify failed" in await trouble_at(url)


async def test_the_name_of_a_server_has_to_be_the_one_in_its_certificate(secure: RedisNode) -> None:
    other = secure.url.replace("127.0.0.1", "127.1")  # another spelling of the same address
    assert "certificate verify failed" in await trouble_at(other)


async def test_a_wrong_password_is_told_and_not_shown(secure: RedisNode) -> None:
    trouble = await trouble_at(secure.url.replace("secret", "wrong"))
    assert "invalid username-password pair" in trouble
    assert "wrong" not in trouble


def context_of(url: str) -> ssl.SSLContext:
    context: ssl.SSLContext = read_url(url, 1.0).connection().ssl_context.get()
    return context


def test_all_connections_share_a_context_until_a_file_changes(tmp_path: Path) -> None:
    tls = Tls(tmp_path / "tls")
    url = read_url(f"rediss://localhost{tls.in_url}", 1.0)
    first = url.connection().ssl_context.context
    assert first is not None
    assert url.connection().ssl_context.context is first

    renewed = Tls(tmp_path / "renewed")
    for old, new in zip((tls.ca, *tls.client), (renewed.ca, *renewed.client), strict=True):
        old.write_bytes(new.read_bytes())
    second = url.connection().ssl_context.context
    assert second is not first
    assert second.get_ca_certs() != first.get_ca_certs()

    tls.client[1].write_text("half of a k")
    assert url.connection().ssl_context.context is second  # a file that is being replaced
    tls.client[1].unlink()
    assert url.connection().ssl_context.context is second


async def test_files_that_do_not_load_are_told_with_their_names(tmp_path: Path) -> None:
    told = await trouble_at("rediss://127.0.0.1:1?ssl_ca_certs=/nowhere.pem")
    assert told == "the TLS files do not load (/nowhere.pem): No such file or directory"
    (tmp_path / "bad.pem").write_text("no certificate")
    assert "bad.pem" in await trouble_at(f"rediss://127.0.0.1:1?ssl_certfile={tmp_path}/bad.pem")


def test_nobody_is_asked_for_the_password_of_a_key(tmp_path: Path) -> None:
    tls = Tls(tmp_path / "tls")
    certificate, key = tls.client
    closed = tmp_path / "closed.key"
    lock = ["openssl", "pkey", "-in", str(key), "-aes128", "-passout", "pass:word", "-out", str(closed)]
    subprocess.run(lock, check=True, capture_output=True, timeout=20)
    url = f"rediss://h?ssl_certfile={certificate}&ssl_keyfile={closed}"
    with pytest.raises(OSError, match="TLS files do not load"):
        read_url(url, 1.0).connection()
    assert context_of(f"{url}&ssl_password=word")
    assert context_of(f"{url}&ssl_password=word&ssl_cert_reqs=none").verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize("parameter", ["ssl_cert_reqs=perhaps", "ssl_min_version=3", "ssl_nonsense=1"])
def test_a_wrong_parameter_is_told_at_once(parameter: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        read_url(f"rediss://h?{parameter}", 1.0)
