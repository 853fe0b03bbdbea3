"""Nothing shows the token of a PHP client."""

from __future__ import annotations

import pytest

from tests.clients.guarded import NEW, OLD
from tests.clients.php.program import output

WRONG = OLD[:-1] + "6"


async def test_nothing_shows_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQUEUE_TOKEN", raising=False)
    code = f"""
        ini_set('zend.exception_ignore_args', '0');
        ini_set('zend.exception_string_param_max_len', '200');
        $client = new Client($url, token: '{OLD}', retry_for_s: 0);
        $proxied = new Client('http://user:{NEW}@127.0.0.1:1', headers: ['X-Token' => '{NEW}'], retry_for_s: 0);
        $worker = new Worker($client);
        $show = function (mixed $what): void {{
            var_dump($what);
            print_r($what);
            var_export((array) $what);
            echo json_encode($what);
        }};
        foreach ([$client, $proxied, $worker] as $each) {{
            $show($each);
        }}
        $attempts = [
            fn () => $client->stats(),
            fn () => $proxied->stats(),
            fn () => new Client($url, token: '{WRONG}'),
            fn () => new Client($url, token: '{OLD}', timeout_s: -1),
            fn () => new Client($url, headers: ['X-Token' => "{OLD}\\n"]),
            fn () => new Client($url, token: '{OLD}', token_file: 'x'),
            fn () => new Client($url, token: '{OLD}', ca_file: '/'),
        ];
        foreach ($attempts as $attempt) {{
            try {{
                $attempt();
                echo 'NO ERROR';
            }} catch (Throwable $error) {{
                echo "shown\\n", $error;
                var_dump($error->getTrace());
            }}
        }}
    """
    said = await output(code, "http://127.0.0.1:1")
    assert said.count("shown") == 7
    assert "NO ERROR" not in said
    assert "SensitiveParameterValue" in said
    for secret in (OLD, NEW):
        assert secret[12:40] not in said
