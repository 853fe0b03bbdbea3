"""The tokens of Laravel's connections and of Messenger's transports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.guarded import NEW, OLD, Answer, Guarded
from tests.clients.php.program import need, output, told

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNTS = {"delayed": 0, "ready": 0, "reserved": 0}

LARAVEL = """
set_error_handler(fn (int $level) => ($level & (E_DEPRECATED | E_USER_DEPRECATED)) !== 0); // Laravel 8 on PHP 8.2
require 'Illuminate/Queue/autoload.php';
$sized = fn (array $config) => (new JobQueue\\Client\\Laravel\\Connector())->connect($config + ['url' => $url])->size();
"""
SYMFONY = """
set_error_handler(fn (int $level) => ($level & (E_DEPRECATED | E_USER_DEPRECATED)) !== 0); // Symfony 5.4 on PHP 8.2
require 'Symfony/Component/Messenger/autoload.php';
use Symfony\\Component\\Messenger\\Transport\\Serialization\\PhpSerializer;
$factory = new JobQueue\\Client\\Symfony\\TransportFactory();
$made = fn (#[SensitiveParameter] string $dsn, array $options = [])
    => $factory->createTransport($dsn, $options, new PhpSerializer());
$host = str_replace('http://', '', $url);
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with the old token."""
    (tmp_path / "token").write_text(OLD)
    return tmp_path / "token"


def counts(_: Answer) -> Answer:
    return {"success": True, "counts": COUNTS}


async def test_a_connection_of_laravel_has_a_token(file: Path) -> None:
    need("Illuminate/Queue/autoload.php")
    code = f"""
        $sized(['token' => '{OLD}']);
        $sized(['token_file' => '{file}']);
        $sized(['token' => null]); // as env('…') gives it where there is no such variable
    """
    async with Guarded(counts) as server:
        assert await told(LARAVEL + code, server.url, JOBQUEUE_TOKEN=OLD) == []
        assert server.shown == [f"Bearer {OLD}"] * 3


async def test_a_transport_of_messenger_has_a_token_in_its_options_or_as_the_password_of_its_dsn(file: Path) -> None:
    need("Symfony/Component/Messenger/autoload.php")
    code = f"""
        $all = [
            $made("jobqueue://$host/orders", ['token' => '{OLD}']),
            $made("jobqueue://$host/orders?token_file={file}"),
            $made("jobqueue://:{OLD}@$host/orders"),
            $made("jobqueue://:{OLD}@$host,$host/orders"),
        ];
        array_map(fn ($transport) => $transport->getMessageCount(), $all);
    """
    async with Guarded(counts) as server:
        assert await told(SYMFONY + code, server.url) == []
        assert server.shown == [f"Bearer {OLD}"] * 4


async def test_a_proxys_name_and_password_in_a_dsn_stay_what_they_are() -> None:
    need("Symfony/Component/Messenger/autoload.php")
    async with Guarded(counts) as server:
        code = """
            try {
                $made("jobqueue://shop:word@$host/orders")->getMessageCount();
            } catch (Symfony\\Component\\Messenger\\Exception\\TransportException $error) {
                $tell($error->getMessage());
            }
        """
        assert len(await told(SYMFONY + code, server.url)) == 1
        assert server.shown == ["Basic c2hvcDp3b3Jk"]


async def test_neither_a_transport_nor_its_errors_show_the_token() -> None:
    need("Symfony/Component/Messenger/autoload.php")
    code = f"""
        ini_set('zend.exception_ignore_args', '0');
        ini_set('zend.exception_string_param_max_len', '200');
        $transport = $made('jobqueue://:{OLD}@127.0.0.1:1/orders?retry_for_s=0');
        var_dump($transport);
        var_export($transport);
        $attempts = [
            fn () => $transport->getMessageCount(),
            fn () => $made('jobqueue://:{OLD}@127.0.0.1:1/orders?wrong=1', ['token' => '{NEW}']),
            fn () => $made('jobqueue://:{OLD}@'),
            fn () => $made('jobqueue://:{OLD}@127.0.0.1:1/orders', ['token_file' => '{NEW}']),
        ];
        foreach ($attempts as $attempt) {{
            try {{
                $attempt();
            }} catch (Throwable $error) {{
                echo "shown\\n", $error;
            }}
        }}
    """
    said = await output(SYMFONY + code, "http://127.0.0.1:1")
    assert said.count("shown\n") == 4
    assert OLD[12:40] not in said, said
    assert "createTransport(Object(SensitiveParameterValue)" in said
