"""What only the PHP worker has: a lease that ends beside its handler, a client in place of a URL, its log lines."""

from __future__ import annotations

import pytest

from tests.clients.php.program import output, told
from tests.kit.service import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_lease_that_ends_before_its_handler_is_expired_and_not_lost(queue: Client) -> None:
    code = """
        $client = new Client($url);
        $tellJobs = fn (string $event, array $fields)
            => str_starts_with($event, 'job.') && $tell([$event, $fields['id'], $fields['attempt']]);
        $worker = new Worker($url, keep_alive_s: 0, on_event: $tellJobs);
        $client->add('t', 1, id: 'slow', ttr: 0.2);
        $worker->job('t', function (Job $job) use ($worker, $client): void {
            $client->batch([['command' => 'clock', 'advance' => 1]]);
            while ($job->lost() === null) {
                usleep(10_000);
            }
            $worker->stop();
            $job->check();
        });
        $worker->run();
    """
    assert await told(code, queue.url) == [["job.started", "slow", 1], ["job.expired", "slow", 1]]


async def test_a_worker_takes_the_options_of_a_client_in_place_of_one(queue: Client) -> None:
    code = """
        (new Client($url))->add('options', ['a' => new stdClass()], id: 'options');
        foreach ([['client' => $url], ['url' => $url], ['urls' => [$url]]] as $where) {
            $worker = new Worker(...$where, max_jobs: 1, timeout_s: 5.0, headers: ['X-Shop' => 'a'], objects: true);
            $worker->job('options', function (Job $job) use ($tell): void {
                $tell($job->body instanceof stdClass);
                throw new Retry(after: 0, attempt: false);
            });
            $worker->run();
        }
        $given = new Client($url);
        $refused = [[$url, 'retry_for_s' => 1], [$given, 'token_file' => 'x'], ['timeout_s' => 1.0], [$url, 'ca' => 1]];
        foreach ($refused as $options) {
            try {
                new Worker(...$options);
            } catch (Throwable $error) {
                $tell($error->getMessage());
            }
        }
    """
    assert await told(code, queue.url) == [
        *[True] * 3,
        "retry_for_s is not an option of a worker: it never gives up",
        "token_file is an option of the client: give it to that, or give the worker a URL",
        "give either url or urls, the addresses of one service",
        "Unknown named parameter $ca",
    ]


async def test_the_log_line_of_a_failure_has_file_and_line_and_the_cause(queue: Client) -> None:
    code = """
        (new Client($url))->add('t', ['secret' => 'hidden'], tries: 1);
        $worker = new Worker($url, max_jobs: 1);
        $worker->job('t', function (Job $job): void {
            try {
                throw new DomainException('gone');
            } catch (DomainException $cause) {
                $job->body->nonsense(); /* the line */
            } finally {
                throw new RuntimeException('no order', 0, $cause);
            }
        });
        $worker->run();
    """
    lines = (await output(code, queue.url)).splitlines()
    (failed,) = [line for line in lines if " job.failed " in line]
    assert 'reason="RuntimeException: no order"' in failed and "program.php:" in failed.partition(" at=")[2]
    assert 'caused_by="' in failed and failed.count("program.php:") == 2
    assert any(" job.died " in line for line in lines)
    assert "hidden" not in "".join(lines)
