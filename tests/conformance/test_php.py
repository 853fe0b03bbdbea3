"""Tests of the PHP client alone: its lease keeper process, curl handles, streams and signals."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.participants import PARTICIPANTS, Participant
from tests.conformance.stage import Stage
from tests.kit.service import ROOT
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEAD = f"""<?php
use JobQueue\\Client\\Client;
use JobQueue\\Client\\Job;
use JobQueue\\Client\\Worker;
require '{ROOT}/clients/php/autoload.php';
$url = getenv('URL');
"""


@pytest.fixture(scope="module", params=[each for each in PARTICIPANTS if each.name == "php"], ids=["php"])
def participant(request: pytest.FixtureRequest) -> Participant:
    chosen: Participant = request.param
    if missing := chosen.lacks():
        pytest.skip(missing)
    return chosen


async def begun(
    stage: Stage, program: str, *arguments: str, stdin: int = asyncio.subprocess.PIPE, php: tuple[str, ...] = ("php",)
) -> Any:
    """A running PHP program, in its own session: from the file in the arguments, otherwise from its standard input."""
    process = await asyncio.create_subprocess_exec(
        *(*php, *arguments),
        stdin=stdin,
        start_new_session=True,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"URL": stage.service.url},
    )
    if process.stdin:
        process.stdin.write((HEAD + program).encode())
        process.stdin.close()
    return process


async def keeper_of(process: Any) -> int:
    """The pid of a worker's lease keeper, once its handler has written `begun`."""
    while b"begun" not in (line := await process.stdout.readline()):
        assert line
    (keeper,) = [pid for pid in pids() if _is_beside(process.pid, pid)]
    return keeper


def pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _is_beside(worker: int, pid: int) -> bool:
    """Return True if it is another process in the worker's session, and no child of the worker."""
    try:
        parent, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1:4]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return int(session) == worker and pid != worker and int(parent) != worker


async def said(process: Any) -> str:
    """Its remaining output, until it ends."""
    async with asyncio.timeout(30):
        text = (await process.stdout.read()).decode()
        await process.wait()
    return str(text)


async def test_clients_that_are_dropped_leave_no_connection_open(stage: Stage) -> None:
    program = """
        for ($n = 0; $n < 20; $n++) {
            (new Client($url))->stats();
        }
        echo count(scandir('/proc/self/fd')) < 20 ? 'few' : 'many';
    """
    assert await said(await begun(stage, program)) == "few"


async def test_a_batch_may_be_an_array_with_gaps(stage: Stage) -> None:
    program = """
        $commands = [['command' => 'stats'], null, ['command' => 'topics']];
        echo json_encode(array_keys((new Client($url))->batch(array_filter($commands))));
    """
    assert await said(await begun(stage, program)) == "[0,1]"


KEEPS = """
    (new Client($url))->add($topic, 1, id: "$topic:1", ttr: 0.4);
    $worker = new Worker($url);
    $worker->job($topic, function (Job $job) use ($worker): void {
        for ($end = microtime(true) + 1.2; microtime(true) < $end;) {
            usleep(10_000);
        }
        $worker->stop();
    });
    $worker->run();
    echo "over\\n";
"""


@pytest.mark.parametrize("closes", ["", "fclose(STDIN);", "fclose(STDIN); fclose(STDOUT);"])
async def test_a_daemon_without_its_streams_keeps_its_lease(stage: Stage, tmp_path: Path, closes: str) -> None:
    topic = f"streams-{len(closes)}"
    file = tmp_path / "daemon.php"
    file.write_text(f"{HEAD}{closes} $topic = '{topic}'; {KEEPS.replace('STDOUT', 'STDERR')}")
    text = await said(await begun(stage, "", str(file), stdin=asyncio.subprocess.DEVNULL))
    assert (await stage.client.ask("get", id=f"{topic}:1"))["deliveries"] == 1
    assert text.count("over") == (0 if "STDOUT" in closes else 1) and "rror" not in text, text


async def test_a_program_from_the_standard_input_keeps_its_lease(stage: Stage) -> None:
    text = await said(await begun(stage, f"$topic = 'piped'; {KEEPS}"))
    assert (await stage.client.ask("get", id="piped:1"))["deliveries"] == 1
    assert text.count("over") == 1 and text.count("worker.stopped") == 1 and "rror" not in text, text


async def test_a_signal_in_the_midst_of_the_start_stops_the_worker_in_order(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "start.php"
    file.write_text(
        HEAD
        + """
        ini_set('memory_limit', '-1');
        $big = str_repeat('x', 1 << 27); // so that the fork of the keeper takes some time
        for ($n = 0; $n < strlen($big); $n += 4096) {
            $big[$n] = 'y';
        }
        pcntl_async_signals(true);
        pcntl_signal(SIGTERM, fn () => exit('early'));
        $worker = new Worker($url);
        $worker->job('starts', fn (Job $job) => null);
        echo "now\\n";
        echo $worker->run() ? 'clean' : 'unclean';
        """
    )
    for number in range(8):
        process = await begun(stage, "", str(file))
        await process.stdout.readline()
        await asyncio.sleep(number / 2000)  # a random moment is the point of the test
        process.send_signal(signal.SIGTERM)
        text = await said(process)
        assert text.endswith(("clean", "early")) and "rror" not in text, text


async def test_a_logger_and_hooks_that_fail_do_no_harm(stage: Stage) -> None:
    program = """
        require 'Psr/Log/autoload.php';
        (new Client($url))->add('log', 1, id: 'log:1', backoff: [60]);
        $fails = fn () => throw new RuntimeException('disk full');
        $logger = new class extends Psr\\Log\\AbstractLogger {
            public function log($level, $message, array $context = []): void
            {
                throw new RuntimeException('log full');
            }
        };
        $worker = new Worker($url, on_event: $fails, on_error: $fails, on_death: $fails, logger: $logger);
        $worker->job('log', fn (Job $job) => [$worker->stop(), throw new Exception('boom')]);
        echo $worker->run() ? 'clean' : 'unclean';
    """
    text = await said(await begun(stage, program))
    assert text.endswith("clean") and "disk full" in text and "log full" in text, text
    assert "boom" in (await stage.client.ask("get", id="log:1"))["reason"]


async def test_a_handler_that_is_interrupted_is_no_clean_end_though_its_job_was_deleted(stage: Stage) -> None:
    program = """
        ($client = new Client($url))->add('gone', 1, id: 'gone:1', ttr: 0.3);
        $worker = new Worker($url, grace_s: 0.5);
        $worker->job('gone', function (Job $job) use ($worker, $client): void {
            $client->delete('gone:1');
            $worker->stop();
            while (true) {
                sleep(1);
            }
        });
        echo $worker->run() ? 'clean' : 'unclean';
    """
    assert (await said(await begun(stage, program))).endswith("unclean")


async def test_a_keeper_that_died_is_replaced_when_the_handler_looks(stage: Stage) -> None:
    program = """
        $worker = new Worker($url);
        $worker->job('keeper', function (Job $job) use ($worker): void {
            echo "begun\\n";
            for ($end = microtime(true) + 7.0; microtime(true) < $end; usleep(10_000)) {
                $job->check();
            }
            $worker->stop();
        });
        echo $worker->run() ? 'clean' : 'unclean';
    """
    await stage.client.ask("add", topic="keeper", id="keeper:1", body=1, ttr=5)
    process = await begun(stage, program)
    os.kill(await keeper_of(process), signal.SIGKILL)
    assert (await said(process)).endswith("clean")
    assert (await stage.client.ask("get", id="keeper:1"))["deliveries"] == 1


async def test_a_worker_that_was_stopped_before_its_start_asks_for_no_job(stage: Stage) -> None:
    program = """
        $worker = new Worker($url);
        $worker->job('early', fn (Job $job) => null);
        $worker->stop();
        $begun = microtime(true);
        $worker->run();
        echo microtime(true) - $begun < 0.8 ? 'at once' : 'late';
    """
    assert (await said(await begun(stage, program))).endswith("at once")


async def test_the_keeper_ends_with_its_worker_though_a_child_of_the_handler_lives(stage: Stage) -> None:
    program = """
        $worker = new Worker($url);
        $worker->job('orphan', function (Job $job): void {
            if (pcntl_fork() !== 0) {
                echo "begun\\n";
            }
            sleep(60);
        });
        $worker->run();
    """
    await stage.client.ask("add", topic="orphan", id="orphan:1", body=1, ttr=30)
    process = await begun(stage, program)
    keeper = await keeper_of(process)
    process.kill()
    await until(lambda: not Path(f"/proc/{keeper}").exists())
    await process.wait()
    os.killpg(process.pid, signal.SIGKILL)  # the child still holds its standard output
    process._transport.close()


async def test_a_handler_that_waits_for_all_its_children_returns(stage: Stage) -> None:
    program = """
        pcntl_async_signals(true);
        pcntl_signal(SIGCHLD, function (): void {
            echo 'reaped ', pcntl_wait($status, WNOHANG), "\\n";
        });
        (new Client($url))->add('children', 1, id: 'children:1', ttr: 0.4);
        $worker = new Worker($url);
        $worker->job('children', function (Job $job) use ($worker): void {
            pcntl_signal(SIGCHLD, SIG_DFL);
            foreach ([0.2, 1.2] as $seconds) {
                if (pcntl_fork() === 0) {
                    usleep((int) ($seconds * 1e6));
                    posix_kill(getmypid(), SIGKILL);
                }
            }
            while (pcntl_wait($status) > 0);
            $worker->stop();
        });
        echo $worker->run() ? 'clean' : 'unclean';
    """
    text = await said(await begun(stage, program))
    assert text.endswith("clean") and "reaped" not in text.replace("reaped -1", ""), text
    assert (await stage.client.ask("get", id="children:1"))["deliveries"] == 1


_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child")
_may_unshare = shutil.which("unshare") and subprocess.call([*_NAMESPACE, "true"], stderr=subprocess.DEVNULL) == 0
namespaces = pytest.mark.skipif(not _may_unshare, reason="needs unshare --pid")


@namespaces
@pytest.mark.parametrize("proc", [(), ("--mount-proc",)], ids=["proc-of-another-namespace", "own-proc"])
async def test_a_worker_as_pid_1_keeps_its_lease_and_waits_for_a_child_by_its_pid(
    stage: Stage, proc: tuple[str, ...]
) -> None:
    topic = f"first-{len(proc)}"
    program = (
        f"$topic = '{topic}';"
        + """
        (new Client($url))->add($topic, 1, id: "$topic:1", ttr: 0.4);
        $worker = new Worker($url);
        $worker->job($topic, function (Job $job): void {
            if (($child = pcntl_fork()) === 0) {
                usleep(1_200_000);
                posix_kill(getmypid(), SIGKILL);
            }
            pcntl_waitpid($child, $status);
            posix_kill(getmypid(), SIGTERM);
        });
        echo $worker->run() ? 'clean ' : 'unclean ', getmypid();
    """
    )
    text = await said(await begun(stage, program, php=(*_NAMESPACE, *proc, "php")))
    assert text.endswith("clean 1") and 'reason="signal"' in text, text
    assert (await stage.client.ask("get", id=f"{topic}:1"))["deliveries"] == 1


@namespaces
async def test_a_process_that_has_the_pid_of_one_that_ended_gets_no_signal_of_it(stage: Stage) -> None:
    program = """
        function child(): int {
            ($pid = pcntl_fork()) === 0 && sleep(60);
            return $pid;
        }
        $first = JobQueue\\Client\\Worker\\Process::of($pid = child());
        echo $first->isAlive() ? 'alive ' : 'gone ';
        $first->kill(SIGKILL);
        while ($first->isAlive()); // until it is a zombie
        pcntl_waitpid($pid, $status);
        usleep(50_000); // the start of a process is known to 10 ms
        file_put_contents('/proc/sys/kernel/ns_last_pid', (string) ($pid - 1));
        echo child() === $pid ? 'again ' : 'another ';
        $first->kill(SIGKILL);
        echo $first->isAlive() ? 'alive ' : 'gone ';
        echo posix_kill($pid, SIGTERM) && pcntl_waitpid($pid, $status) === $pid ? pcntl_wtermsig($status) : 'lost';
    """
    text = await said(await begun(stage, program, php=(*_NAMESPACE, "--mount-proc", "php")))
    assert text == f"alive again gone {signal.SIGTERM.value}"


async def test_pauses_are_random_and_bounded(stage: Stage) -> None:
    program = """
        foreach ([1 => 0.1, 3 => 0.4, 100 => 2.0] as $n => $most) {
            $lengths = array_map(fn () => JobQueue\\Client\\Retries::length($n, null), range(1, 200));
            echo min($lengths) < $most / 4 && max($lengths) > $most * 3 / 4 && max($lengths) <= $most ? 'y' : 'n';
        }
    """
    assert await said(await begun(stage, program)) == "yyy"


async def test_a_message_that_is_not_utf8_is_kept_as_far_as_it_is(stage: Stage) -> None:
    program = """
        (new Client($url))->add('bytes', 1, id: 'bytes:1', backoff: [60]);
        $worker = new Worker($url);
        $worker->job('bytes', function (Job $job) use ($worker): void {
            $worker->stop();
            throw new DomainException("price \\xff");
        });
        echo $worker->run() ? 'clean' : 'unclean';
    """
    assert (await said(await begun(stage, program))).endswith("clean")
    told = await stage.client.ask("get", id="bytes:1")
    assert (told["state"], told["reason"]) == ("delayed", "DomainException: price \N{REPLACEMENT CHARACTER}")


async def test_a_fork_does_not_speak_on_its_parents_connection(stage: Stage) -> None:
    program = """
        $client = new Client($url, timeout_s: 2, retry_for_s: 0);
        foreach (['parent', 'child'] as $topic) {
            $client->add('fork', 1, id: "fork:$topic", delay: 60);
        }
        $child = pcntl_fork();
        $id = $child === 0 ? 'fork:child' : 'fork:parent';
        for ($right = $n = 0; $n < 200; $n++) {
            $right += $client->get($id)['id'] === $id ? 1 : 0;
        }
        $child === 0 || pcntl_waitpid($child, $status);
        echo "$right\\n";
    """
    assert await said(await begun(stage, program)) == "200\n200\n"
