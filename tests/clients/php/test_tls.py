"""The PHP client over https: certificates are always checked, and its own is shown."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from tests.clients.guarded import OLD, Guarded
from tests.clients.php.program import told

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKS = f"""
$asked = function (array $files, ?string $at = null) use ($url, $tell): void {{
    try {{
        $client = new Client($at ?? $url, ...$files, retry_for_s: 0, token: '{OLD}');
        $tell($client->stats()['success']);
    }} catch (JobQueue\\Client\\Exception\\UnreachableException $error) {{
        $tell(['unreachable', $error->maybe_done, preg_replace('~^.*\\d: ~', '', $error->getMessage())]);
    }} catch (InvalidArgumentException $error) {{
        $tell($error->getMessage());
    }}
}};
chdir(getenv('FOLDER'));
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificates: of an authority, its server and its worker, and of another authority."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    for name, host in [("server", "127.0.0.1"), ("worker", "worker.example")]:
        made = authority.issue_cert(host)
        made.private_key_pem.write_to_path(folder / f"{name}.key")
        made.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        made.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}-both.pem")
    return folder


@asynccontextmanager
async def serving(folder: Path, verify: ssl.VerifyMode = ssl.CERT_NONE) -> AsyncIterator[Guarded]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.verify_mode = verify
    async with Guarded(lambda _: {"success": True}, tls=context) as server:
        yield server


async def test_a_certificate_of_the_authority_in_ca_file_is_accepted_and_no_other(folder: Path) -> None:
    code = """
        $asked(['ca_file' => 'ca.pem']);
        $asked(['ca_file' => 'other.pem']);
        $asked([]);
        $asked(['ca_file' => 'ca.pem'], str_replace('127.0.0.1', 'localhost', $url));
    """
    async with serving(folder) as server:
        said = await told(ASKS + code, server.url, FOLDER=str(folder))
        assert said[0] is True and [each[:2] for each in said[1:]] == [["unreachable", False]] * 3
        assert all(said[n][2].startswith("the certificate is not trusted (") for n in (1, 2)), said
        assert said[3][2].startswith("the certificate is not valid: "), said
        assert len(server.requests) == 1


async def test_cert_file_and_key_file_show_who_the_client_is(folder: Path) -> None:
    code = """
        $asked(['ca_file' => 'ca.pem', 'cert_file' => 'worker.pem', 'key_file' => 'worker.key']);
        $asked(['ca_file' => 'ca.pem', 'cert_file' => 'worker-both.pem']);
        $asked(['ca_file' => 'ca.pem']);
        $asked([], str_replace('https:', 'http:', $url));
    """
    async with serving(folder, ssl.CERT_REQUIRED) as server:
        said = await told(ASKS + code, server.url, FOLDER=str(folder))
        assert said[:2] == [True, True]
        assert said[2][0] == "unreachable"
        assert said[3] == ["unreachable", False, "this port speaks TLS: use https://"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("['ca_file' => 'none.pem']", "ca_file: cannot read"),
        ("['ca_file' => 'worker.key']", "ca_file: 'worker.key' holds no CERTIFICATE"),
        ("['cert_file' => 'worker.key']", "cert_file: "),
        ("['cert_file' => 'worker.pem', 'key_file' => 'ca.pem']", "key_file: "),
        ("['key_file' => 'worker.key']", "key_file needs cert_file"),
        ("['ca_file' => 'ca.pem'], 'http://127.0.0.1:1'", "ca_file is for https URLs"),
    ],
)
async def test_a_file_that_cannot_be_used_is_told_at_once(folder: Path, files: str, message: str) -> None:
    (said,) = await told(f"{ASKS} $asked({files});", "https://127.0.0.1:1", FOLDER=str(folder))
    assert said.startswith(message)
