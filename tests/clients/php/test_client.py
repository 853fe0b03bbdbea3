"""The arguments and errors of the PHP client."""

from __future__ import annotations

import pytest

from tests.clients.php.program import told
from tests.kit.service import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_third_argument_of_add_is_the_delay(queue: Client) -> None:
    code = """
        $client = new Client($url);
        $client->add('order-close', 1, 1800, 'o:1');
        $client->add('order-close', 1, 0.5, 'o:2');
        $client->add('order-close', 1, new DateInterval('PT30M'), id: 'o:3');
    """
    assert await told(code, queue.url) == []
    now = (await queue.ask("clock"))["now"]
    due = [(await queue.ask("get", id=f"o:{number}"))["due"] - now for number in (1, 2, 3)]
    assert due == [pytest.approx(delay, abs=0.01) for delay in (1800, 0.5, 1800)]


@pytest.mark.parametrize("third", ["'1800'", "'order-close:1001'", "true", "[1800]", "new DateTime()"])
async def test_anything_else_there_is_a_type_error_without_strict_types_too(queue: Client, third: str) -> None:
    code = f"""
        try {{
            (new Client($url))->add('order-close', 1, {third});
        }} catch (TypeError $error) {{
            $tell($error->getMessage());
        }}
    """
    (message,) = await told(code, queue.url)
    assert "delay must be a number of seconds or a DateInterval" in message
    assert (await queue.ask("topics"))["topics"] == []


async def test_a_batch_of_no_commands_is_refused_with_one_that_would_do(queue: Client) -> None:
    code = """
        foreach ([['command' => 'stats'], [null], [1]] as $commands) {
            try {
                (new Client($url))->batch($commands);
            } catch (TypeError $error) {
                $tell($error->getMessage());
            }
        }
    """
    wanted = "batch() needs a list of commands, such as [['command' => 'stats']]; one is a "
    assert await told(code, queue.url) == [wanted + came for came in ("string", "null", "int")]


async def test_a_delay_may_be_an_interval_everywhere(queue: Client) -> None:
    code = """
        $client = new Client($url);
        $minute = new DateInterval('PT1M');
        $client->batch([['command' => 'add', 'topic' => 't', 'body' => 1, 'id' => 'batch', 'delay' => $minute]]);
        $client->add('t', 1, 5, id: 'update');
        $client->update('update', delay: $minute);
        $client->add('r', 1, id: 'release');
        $client->release($client->pop('r'), delay: $minute);
        $tell((new Retry(after: $minute))->after);
        foreach (['batch', 'update', 'release'] as $id) {
            $tell([round($client->get($id)['until'] - $client->get('batch')['created'])]);
        }
    """
    assert await told(code, queue.url) == [[60], [60], [60]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'http://a:8000,http://b:8000'", "several are urls: ['http://a:8000', 'http://b:8000']"),
        ("['http://a:8000']", "url is one address; several are urls:"),
        ("'http://a:8000', urls: ['http://b:8000']", "give either url or urls"),
        ("", "give either url or urls"),
        ("urls: []", "urls must be an array of at least one URL"),
        ("urls: ['http://a:8000', 7]", "each of urls must be a service's URL such as http://localhost:8000, not 'int'"),
        ("'localhost:8000'", "url must be a service's URL such as http://localhost:8000, not 'localhost:8000'"),
    ],
)
async def test_what_is_no_address_is_refused_with_what_is_meant(queue: Client, arguments: str, message: str) -> None:
    code = f"""
        try {{
            new Client({arguments});
        }} catch (InvalidArgumentException $error) {{
            $tell($error->getMessage());
        }}
    """
    (said,) = await told(code, queue.url)
    assert message in said


async def test_an_error_names_the_command_the_job_and_its_state_and_has_an_int_as_its_code(queue: Client) -> None:
    code = """
        $client = new Client($url, retry_for_s: 0);
        $client->add('t', 1, id: 'ord-8');
        $client->finish($client->pop('t'));
        foreach ([fn () => $client->delete('ord-7'), fn () => $client->delete('ord-8'),
                  fn () => $client->add('t', 1, at: '2030-01-01 09:00', id: 'ord-9'),
                  fn () => (new Client('http://127.0.0.1:1', retry_for_s: 0))->get('ord-7')] as $call) {
            try {
                $call();
            } catch (JobQueue\\Client\\Exception\\JobQueueException $error) {
                $tell([$error->getMessage(), $error->error_code ?? null, $error->getCode()]);
            }
        }
    """
    missing, finished, badly_timed, unreachable = await told(code, queue.url)
    assert missing == ["delete ord-7: no such job", "NOT_FOUND", 0]
    assert finished[0].startswith("delete ord-8: ") and "finished" in finished[0] and finished[1] == "WRONG_STATE"
    assert badly_timed[0].startswith("add ord-9: at ") and "T09:00:00+" in badly_timed[0]  # an example of a right one
    assert unreachable[0].startswith("get ord-7: http://127.0.0.1:1: Failed to connect") and unreachable[2] == 0


async def test_a_producer_gives_up_within_two_seconds_and_at_once_when_it_asks_for_that(queue: Client) -> None:
    code = """
        foreach ([[], ['retry_for_s' => 0.0]] as $options) {
            $begun = microtime(true);
            try {
                (new Client('http://127.0.0.1:1', ...$options))->add('t', 1, id: '1');
            } catch (JobQueue\\Client\\Exception\\UnreachableException) {
                $tell(microtime(true) - $begun < 5);
            }
        }
    """
    assert await told(code, queue.url) == [True, True]


async def test_a_repetition_that_is_refused_leaves_the_first_attempt_uncertain(queue: Client) -> None:
    code = """
        $server = stream_socket_server('tcp://127.0.0.1:0');
        $address = stream_socket_get_name($server, false);
        if (pcntl_fork() === 0) {
            $connection = stream_socket_accept($server);
            fclose($server);
            fread($connection, 65536); // the request arrives, and the connection breaks
            posix_kill(getmypid(), SIGKILL);
        }
        fclose($server);
        try {
            (new Client("http://$address", retry_for_s: 0.5))->delete('1');
        } catch (JobQueue\\Client\\Exception\\UnreachableException $error) {
            $tell($error->maybe_done);
        }
    """
    assert await told(code, queue.url) == [True]


async def test_the_other_address_is_asked_at_once_for_whatever_was_not_executed(queue: Client) -> None:
    code = """
        for ($n = 0; $n < 10; $n++) { // in any order
            $client = new Client(urls: ['http://127.0.0.1:1', $url, 'http://127.0.0.1:2'], retry_for_s: 0);
            $tell($client->add('t', $n)['result']);
            $client->pop('t');
        }
    """
    assert await told(code, queue.url) == ["created"] * 10
