"""The PHP worker's log in loggers of PSR-3: the real psr/log, and the real Monolog."""

from __future__ import annotations

import pytest

from tests.clients.php.program import need, output, told
from tests.kit.service import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAILS = """
(new Client($url))->add('t', ['secret' => 'hidden'], tries: 1);
$worker = new Worker($url, max_jobs: 1, logger: $logger);
$worker->job('t', fn (Job $job) => throw new RuntimeException('no order', 0, new DomainException('gone')));
$worker->run();
"""


async def test_a_psr_3_logger_gets_levels_fields_and_the_exception(queue: Client) -> None:
    need("Psr/Log/autoload.php")
    code = """
        require 'Psr/Log/autoload.php';
        $logger = new class ($tell) extends Psr\\Log\\AbstractLogger {
            public function __construct(private Closure $tell)
            {
            }

            public function log($level, $message, array $context = []): void
            {
                $error = $context['exception'] ?? null;
                ($this->tell)([$level, $message, array_keys($context), $error?->getPrevious()?->getMessage()]);
            }
        };
    """
    lines = {message: (level, fields, cause) for level, message, fields, cause in await told(code + FAILS, queue.url)}
    assert lines["worker.started"] == ("info", ["worker"], None)
    of_job = ["topic", "id", "attempt", "seconds", "reason", "exception"]
    assert lines["job.failed"] == ("warning", of_job, "gone")
    assert lines["job.died"] == ("error", of_job, "gone")
    assert lines["worker.stopped"][0] == "info" and "died" in lines["worker.stopped"][1]


async def test_monolog_writes_the_place_of_the_error_and_of_its_cause(queue: Client) -> None:
    need("Monolog/autoload.php")
    code = """
        require 'Monolog/autoload.php';
        $logger = new Monolog\\Logger('worker', [new Monolog\\Handler\\StreamHandler(STDOUT)]);
    """
    lines = (await output(code + FAILS, queue.url)).splitlines()
    (died,) = [line for line in lines if "worker.ERROR: job.died" in line]
    assert "RuntimeException" in died and "DomainException" in died and died.count("program.php:") == 2
    assert "hidden" not in "".join(lines)
