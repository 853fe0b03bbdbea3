"""The PHP client's token: where it comes from, what happens when it is refused, and that nothing shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.guarded import NEW, OLD, Answer, Guarded
from tests.clients.php.program import output, told

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRONG = OLD[:-1] + "6"
NOWHERE = "http://127.0.0.1:1"

JOB: Answer = {
    **{"success": True, "id": "x", "topic": "t", "value": 1, "lease": 1, "attempt": 1, "tries": 16},
    **{"due": 0, "ttr": 60, "headers": None, "state": "reserved"},
}
FORBIDDEN: Answer = {
    **{"success": False, "id": None, "error": "this token may not", "code": "FORBIDDEN", "status": 403},
    **{"right": "consume", "topic": "t"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with the old token."""
    (tmp_path / "token").write_text(f"{OLD}\n")
    return tmp_path / "token"


@pytest.fixture(autouse=True)
def _no_token_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQUEUE_TOKEN", raising=False)


def done(_: Answer) -> Answer:
    return {"success": True}


async def test_the_token_is_the_option_or_what_the_file_holds_or_the_environments(file: Path) -> None:
    code = f"""
        foreach ([['token' => '{OLD}'], ['token_file' => '{file}'], []] as $given) {{
            (new Client($url, ...$given))->stats();
        }}
    """
    async with Guarded(done) as server:
        assert await told(code, server.url, JOBQUEUE_TOKEN=OLD) == []
        assert server.shown == [f"Bearer {OLD}"] * 3
        names = {name.lower() for request in server.requests for name in request.headers}
        assert not {name for name in names if name == "origin" or name.startswith("sec-")}


async def test_credentials_in_the_url_or_the_headers_exclude_the_option_and_the_environment_stands_back() -> None:
    code = f"""
        $refused = function (array $given) use ($url, $tell): void {{
            try {{
                new Client(...$given + ['url' => $url]);
            }} catch (InvalidArgumentException $error) {{
                $tell($error->getMessage());
            }}
        }};
        $refused(['token' => '{OLD}', 'token_file' => '/dev/null']);
        $refused(['token' => '{OLD}', 'headers' => ['authorization' => 'Bearer {OLD}']]);
        $refused(['token' => '{OLD}', 'url' => 'http://user:word@localhost']);
        (new Client($url, headers: ['Authorization' => 'Bearer {OLD}']))->stats();
    """
    async with Guarded(done) as server:
        said = await told(code, server.url, JOBQUEUE_TOKEN=NEW)
        assert ["not both" in each for each in said] == [True] * 3
        assert server.shown == [f"Bearer {OLD}"]


@pytest.mark.parametrize("wrong", [WRONG, OLD[:-1], OLD + "x", OLD.lower(), "jqt_", OLD.replace("9", "-"), "a b", ""])
async def test_a_token_that_cannot_be_valid_is_refused_before_anything_is_sent(file: Path, wrong: str) -> None:
    code = f"""
        file_put_contents('{file}', '{wrong}');
        foreach ([['token' => '{wrong}'], ['token_file' => '{file}'], []] as $given) {{
            try {{
                new Client($url, ...$given);
            }} catch (InvalidArgumentException $error) {{
                $tell($error->getMessage());
            }}
        }}
    """
    said = await told(code, NOWHERE, JOBQUEUE_TOKEN=wrong)
    places = ["token ", "the token in token_file ", "JOBQUEUE_TOKEN "][: 3 if wrong else 2]  # an empty variable is none
    assert [message.startswith(place) for message, place in zip(said, places, strict=True)] == [True] * len(places)


async def test_a_file_that_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    code = """
        try {
            new Client($url, token_file: getenv('FOLDER'));
        } catch (InvalidArgumentException $error) {
            $tell($error->getMessage());
        }
    """
    assert "token_file" in (await told(code, NOWHERE, FOLDER=str(tmp_path)))[0]


async def test_a_proxys_token_is_sent_as_it_is() -> None:
    async with Guarded(done, accepted="proxy.token-1=") as server:
        assert await told("(new Client($url, token: 'proxy.token-1='))->stats();", server.url) == []


async def test_a_token_that_was_replaced_in_its_file_is_found_after_the_refusal_of_the_old_one(file: Path) -> None:
    code = f"""
        $client = new Client($url, token_file: '{file}');
        foreach (['', '{WRONG}', '{NEW}'] as $text) {{
            file_put_contents('{file}', $text);
            try {{
                $tell($client->run('x'));
            }} catch (JobQueue\\Client\\Exception\\UnauthorizedException $error) {{
                $tell($error->status);
            }}
        }}
        $client->run('x');
    """
    async with Guarded(done, accepted=NEW) as server:
        assert await told(code, server.url) == [{"success": True}]
        # A file without a token, or with half of one, changes nothing.
        assert server.shown == [f"Bearer {OLD}"] * 3 + [f"Bearer {NEW}"] * 2


async def test_a_forbidden_command_names_the_right_and_the_topic() -> None:
    code = """
        $client = new Client($url, token: getenv('TOKEN'));
        $about = fn (Throwable $error): array => [$error::class, $error->right, $error->topic, $error->status];
        try {
            $client->pop('t');
        } catch (JobQueue\\Client\\Exception\\ForbiddenException $error) {
            $tell($about($error));
        }
        $tell($about($client->batch([['command' => 'pop', 'topic' => 't']])[0]));
    """
    name = "JobQueue\\Client\\Exception\\ForbiddenException"
    async with Guarded(lambda _: dict(FORBIDDEN)) as server:
        assert await told(code, server.url, TOKEN=OLD) == [[name, "consume", "t", 403], [name, "consume", "t", None]]


async def test_what_came_too_fast_is_repeated_every_command() -> None:
    answers: Iterator[Answer] = iter(
        [{"success": False, "error": "too many", "code": "TOO_FAST", "retry_after": 0.1, "status": 429}, JOB] * 4
    )
    code = """
        $client = new Client($url, token: getenv('TOKEN'));
        [$client->add('t', 1), $client->pop('t'), $client->purge('t'), $client->kick('x')];
    """
    async with Guarded(lambda _: dict(next(answers))) as server:
        assert await told(code, server.url, TOKEN=OLD) == []
        commands = [request.commands[0]["command"] for request in server.requests]
        assert commands == ["add", "add", "pop", "pop", "purge", "purge", "kick", "kick"]


async def test_the_commands_about_tokens_have_their_fields() -> None:
    code = """
        $client = new Client($url, token: getenv('TOKEN'));
        $client->whoami();
        $fields = ['name' => 'shop', 'rights' => ['produce'], 'topics' => ['mail-*'], 'expires' => 'never'];
        $client->token('create', ...$fields, own_ids: true);
        $client->token('rotate', 'aaaaaaaa', keep: 60);
        $client->token('test', 'aaaaaaaa', right: 'add', topic: 'mail-a');
    """
    create = {"name": "shop", "rights": ["produce"], "topics": ["mail-*"], "expires": "never", "own_ids": True}
    async with Guarded(done) as server:
        assert await told(code, server.url, TOKEN=OLD) == []
        assert [request.commands[0] for request in server.requests] == [
            {"command": "whoami"},
            {"command": "token", "action": "create", **create},
            {"command": "token", "action": "rotate", "id": "aaaaaaaa", "keep": 60},
            {"command": "token", "action": "test", "id": "aaaaaaaa", "right": "add", "topic": "mail-a"},
        ]


async def test_nothing_shows_the_token() -> None:
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
    said = await output(code, NOWHERE)
    assert said.count("shown") == 7
    assert "NO ERROR" not in said
    assert "SensitiveParameterValue" in said
    for secret in (OLD, NEW):
        assert secret[12:40] not in said


async def test_a_worker_keeps_the_end_of_a_job_while_its_token_is_refused_and_sends_it_with_the_new_one(
    file: Path,
) -> None:
    def answer(command: Answer) -> Answer:
        if command["command"] == "pop":
            server.accepted = NEW
            return JOB
        return {"success": True, "state": "finished"}

    code = f"""
        $mend = fn () => file_put_contents('{file}', '{NEW}');
        $client = new Client($url, token_file: '{file}');
        $worker = new Worker($client, on_event: function (string $event) use ($tell, $mend): void {{
            $event === 'service.lost' && $mend();
            $tell($event);
        }});
        $worker->job('t', fn (Job $job) => $worker->stop());
        $worker->run();
    """
    async with Guarded(answer) as server:
        said = await told(code, server.url)
        assert said == [
            *("worker.started", "job.started", "worker.stopping", "service.lost", "service.back"),
            *("job.finished", "worker.stopped"),
        ]
        finish = [request for request in server.requests if request.commands[0]["command"] == "finish"]
        assert finish[-1].headers["Authorization"] == f"Bearer {NEW}"


async def test_a_worker_whose_topic_is_forbidden_stops_at_once_with_the_error(file: Path) -> None:
    code = f"""
        $worker = new Worker(new Client($url, token_file: '{file}'));
        $worker->job('t', fn (Job $job) => null);
        $worker->run();
    """
    async with Guarded(lambda _: dict(FORBIDDEN)) as server:
        said = await output(code, server.url)
        assert "Uncaught JobQueue\\Client\\Exception\\ForbiddenException: pop t: this token may not" in said
        assert len(server.requests) == 1
