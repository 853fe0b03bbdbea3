"""The PHP test kit, under the real PHPUnit: the shop of docs/testing.md, and what the kit says when a test is wrong."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.clients.php.program import PHP
from tests.kit.service import ROOT, Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = (ROOT / "docs" / "testing.md").read_text().partition("## PHP")[2].partition("## Any language")[0]


async def phpunit(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """The exit code and the output of PHPUnit; its `jobqueue` is that of the checkout."""
    program = shutil.which("phpunit")
    if program is None:
        pytest.skip("phpunit is not installed; .ci/run installs it")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *(program, "--do-not-cache-result", "--bootstrap", str(PHP / "autoload.php"), *arguments),
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


def files(folder: str) -> list[str]:
    return [file.name for file in Path(folder).iterdir()]


def case(folder: Path, methods: str) -> str:
    """A test case of these methods, in a file; gives the file's name."""
    (folder / "KitTest.php").write_text(f"""<?php
        use JobQueue\\Client\\{{Bury, Client, Job, Retry, Worker}};
        final class KitTest extends PHPUnit\\Framework\\TestCase
        {{
            use JobQueue\\Client\\Testing\\UsesQueue;
            {methods}
        }}""")
    return "KitTest.php"


async def test_the_tests_of_the_shop_pass_on_a_service_of_their_own(tmp_path: Path) -> None:
    pages = re.findall(r"```php\n(<\?php\n// (\w+\.php)\n.*?)```", PAGE, re.S)
    assert [name for _, name in pages] == ["ShopTest.php", "Shop.php"]
    for code, name in pages:
        (tmp_path / name).write_text(code)
    with tempfile.TemporaryDirectory(prefix="jq-") as temporary:  # short: the service has a socket there
        code, said = await phpunit(tmp_path, "ShopTest.php", JOBQUEUE_TEST_URL="", TMPDIR=temporary)
        assert code == 0 and "OK (3 tests, " in said, said
        assert files(temporary) == []  # it has stopped, and its log is gone


async def test_the_page_names_what_the_queue_has() -> None:
    source = (PHP / "src" / "Testing" / "Queue.php").read_text()
    methods = set(re.findall(r"public function (?!__)(\w+)", source))
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    assert methods == set(re.findall(r"`->(\w+)\(", table))
    for kind in ("Done", "QueuedJob"):
        fields = re.findall(r"public readonly \S+ \$(\w+)", (PHP / "src" / "Testing" / f"{kind}.php").read_text())
        assert fields and all(f"`{field}`" in table for field in fields)


async def test_each_handler_ends_its_job_as_in_the_worker_and_each_test_begins_empty(
    queue: Client, tmp_path: Path
) -> None:
    file = case(
        tmp_path,
        """
        public function testOutcomes(): void
        {
            foreach (['finished', 'failed', 'retried', 'buried', 'lost', 'died'] as $n => $id) {
                $tries = $id === 'died' ? 1 : 16;
                $this->queue->client->add('t', ['id' => $id], id: $id, priority: 9 - $n, backoff: [60], tries: $tries);
            }
            $deaths = [];
            $worker = new Worker($this->queue->url,
                on_error: function (Throwable $error) use (&$deaths): void { $deaths[] = $error->getMessage(); },
                on_death: function (Job $job, ?string $reason) use (&$deaths): void { $deaths[] = $reason; });
            $seen = [];
            $worker->use(function (Job $job, callable $next) use (&$seen): void {
                $seen[] = $job->id;
                $next();
            });
            $worker->job('t', fn (Job $job) => match ($job->id) {
                'finished' => null,
                'failed', 'died' => throw new DomainException('no'),
                'retried' => throw new Retry(5),
                'buried' => throw new Bury('poison'),
                'lost' => $this->queue->client->delete('lost'),
            });
            $done = $this->queue->drain($worker, raise_errors: false);
            $this->assertSame($seen, array_map(fn ($each) => $each->outcome, $done));
            $this->assertSame(
                ['finished', 'delayed', 'delayed', 'dead'],
                array_slice(array_map(fn ($each) => $each->state, $done), 0, 4),
            );
            $this->assertSame('no', $done[1]->error->getMessage());
            $this->assertSame(['no', 'poison', 'no', 'DomainException: no'], $deaths);
            $deaths = [];
            $this->assertSame('buried', $this->queue->dead('t')[0]->id);
            $this->queue->assertWaiting('t', id: 'retried', body: ['id' => 'retried'], delay: 5);
            $this->queue->assertWaiting('t', id: 'failed', at: $this->queue->now());
            $this->assertSame(['retried', 'failed'], array_map(fn ($job) => $job->id, $this->queue->waiting()));
            $this->queue->client->add('t', ['id' => 'failed'], id: 'failed', if_exists: 'replace', tries: 1);
            [$died] = $this->queue->drain($worker, raise_errors: false);
            $this->assertSame(['died', 'dead'], [$died->outcome, $died->state]);
            $this->assertSame(['no', 'DomainException: no'], $deaths);
        }

        public function testEachTestBeginsEmpty(): void
        {
            $this->queue->assertNoneWaiting();
            $this->assertSame([], $this->queue->dead());
            $this->assertLessThan(60, abs($this->queue->now()->getTimestamp() - time()));
            $this->queue->advance(new DateInterval('PT1H'), minutes: 1);
            $this->assertLessThan(60, abs($this->queue->now()->getTimestamp() - time() - 3660));
        }
        """,
    )
    code, said = await phpunit(tmp_path, file, JOBQUEUE_TEST_URL=queue.url)
    assert code == 0 and "OK (2 tests, " in said, said


async def test_a_wrong_test_fails_and_shows_what_is_waiting(queue: Client, tmp_path: Path) -> None:
    file = case(
        tmp_path,
        """
        public function testAnotherDelay(): void
        {
            $this->queue->client->add('t', ['order' => 7], 60, id: 't:7');
            $this->queue->assertWaiting('t', delay: 90);
        }

        public function testSomethingWaits(): void
        {
            $this->queue->client->add('t', 1, id: 't:8');
            $this->queue->assertNoneWaiting('t');
        }

        public function testAnErrorOfAHandler(): void
        {
            $this->queue->client->add('t', 1, id: 't:9');
            $worker = new Worker($this->queue->url);
            $worker->job('t', fn () => throw new DomainException('out of stock'));
            $this->queue->drain($worker);
        }

        public function testAHandlerThatNeverEnds(): void
        {
            $this->queue->client->add('t', 1, id: 't:10', tries: 0);
            $worker = new Worker($this->queue->url);
            $worker->job('t', fn () => throw new Retry(after: 0));
            $this->queue->drain($worker);
        }
        """,
    )
    code, said = await phpunit(tmp_path, file, JOBQUEUE_TEST_URL=queue.url)
    assert code == 2 and "Errors: 1, Failures: 3" in said, said
    assert "0 jobs, not one, wait in t as described; waiting now:\n  t t:7, due in 60 s" in said
    assert "waiting now:\n  t t:8, ready: 1" in said
    assert "out of stock" in said and "t:10 is ready again at once" in said


async def test_without_a_service_the_kit_says_what_to_install(tmp_path: Path) -> None:
    file = case(tmp_path, "public function testAnything(): void { $this->assertTrue(true); }")
    php = Path(shutil.which("php") or "php")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "php").symlink_to(php)
    (tmp_path / "bin" / "env").symlink_to("/usr/bin/env")
    program = shutil.which("phpunit") or "phpunit"
    process = await asyncio.create_subprocess_exec(
        *(str(php), program, "--do-not-cache-result", "--bootstrap", str(PHP / "autoload.php"), file),
        cwd=tmp_path,
        env={"PATH": str(tmp_path / "bin")},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert process.returncode == 2 and "set JOBQUEUE_TEST_URL to its address" in said.decode(), said.decode()
