"""buckets.redis.client over TLS: with a private certificate authority and an ACL user."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from buckets.errors import Unavailable
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.buckets.jobs import add, popped_ids
from tests.ports import free_port
from tests.redis_server import RedisServer, binaries


def knows_tls(path: str) -> bool:
    """Whether the server was built with TLS; otherwise it does not know the option."""
    said = subprocess.run(
        [path, "--port", "0", "--tls-port", "x"], capture_output=True, text=True, check=False, timeout=10
    )
    return "tls-port" in said.stdout + said.stderr and "Bad directive" not in said.stdout + said.stderr


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def secure(tmp_path: Path, authority: trustme.CA) -> Iterator[str]:
    """The address of a server that only speaks TLS and only admits a user with a password."""
    server = next((path for path in binaries() if knows_tls(path)), None)
    if server is None:
        pytest.skip("no Redis at hand was built with TLS")
    own = authority.issue_cert("localhost")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    port = free_port()
    options = [
        "--tls-port",
        f"{port}",
        "--tls-cert-file",
        f"{tmp_path}/cert.pem",
        "--tls-key-file",
        f"{tmp_path}/key.pem",
    ]
    options += ["--tls-ca-cert-file", f"{tmp_path}/ca.pem", "--tls-auth-clients", "no"]
    options += ["--user", *["queue", "on", ">secret", "~*", "&*", "+@all"]]
    with RedisServer(tmp_path, *options, server=server):
        yield f"localhost:{port}"


async def test_a_certificate_of_ones_own_authority_is_trusted(secure: str, tmp_path: Path) -> None:
    redis = Redis(f"rediss://queue:secret@{secure}?ssl_ca_certs={tmp_path}/ca.pem")
    pool = await Pool.open(redis)
    await add(pool, "a")
    assert await popped_ids(pool) == ["a"]
    await redis.close()


@pytest.mark.parametrize("parameters", ["", "?ssl_ca_certs={other}"])
async def test_a_certificate_of_another_authority_is_not(secure: str, tmp_path: Path, parameters: str) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    redis = Redis(f"rediss://queue:secret@{secure}{parameters.format(other=other)}", timeout_s=0.5)
    with pytest.raises(Unavailable):
        await redis.read("PING")
    assert "certificate verify failed" in redis.trouble
    await redis.close()


async def test_a_wrong_password_is_told_and_not_shown(secure: str, tmp_path: Path) -> None:
    redis = Redis(f"rediss://queue:wrong@{secure}?ssl_ca_certs={tmp_path}/ca.pem", timeout_s=0.5)
    with pytest.raises(Unavailable):
        await redis.read("PING")
    assert "invalid username-password pair" in redis.trouble
    assert "wrong" not in redis.trouble
    await redis.close()
