"""The PHP client's README: what test_readmes.py does not run is at least PHP, and its database example works."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.php.program import PHP, need, running, text
from tests.kit.service import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

BLOCKS = re.findall(r"```php\n(.*?)```", (PHP / "README.md").read_text() + (PHP / "frameworks.md").read_text(), re.S)


def php(*arguments: str) -> subprocess.CompletedProcess[str]:
    need()
    program = shutil.which("php") or "php"
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def lint(code: str, file: Path) -> str:
    """What PHP has to say against some code."""
    file.write_text(code)
    linted = php("-l", str(file))
    return linted.stdout if linted.returncode else ""


async def test_every_block_is_php(tmp_path: Path) -> None:
    assert len(BLOCKS) > 6
    for block in BLOCKS:
        if not block.startswith("'default'"):  # a part of config/queue.php
            assert lint(f"<?php\n{block}", tmp_path / "block.php") == "", block


async def test_the_middleware_gives_a_worker_a_new_database_connection_when_the_old_one_is_gone(queue: Client) -> None:
    if "pdo_sqlite" not in php("-m").stdout.split():
        pytest.skip("php lacks pdo_sqlite; .ci/run installs it")
    (block,) = [block for block in BLOCKS if "reconnectIfGone" in block]
    code = f"""
        (new Client($url))->batch(array_fill(0, 3, ['command' => 'add', 'topic' => 't', 'body' => 1]));
        $worker = new Worker($url, max_jobs: 3);
        {block.replace("SELECT 1", "SELECT probe()")}
        $worker->job('t', function (Job $job) use ($db): void {{
            static $last = null;
            $pdo = $db->pdo();
            echo $pdo === $last ? 'same ' : 'new ';
            $last = $pdo;
            // A connection of SQLite never goes away: one without this function does as one that is gone.
            $GLOBALS['jobs'] = ($GLOBALS['jobs'] ?? 0) + 1;
            $GLOBALS['jobs'] === 1 && $pdo->sqliteCreateFunction('probe', fn () => 1);
            $GLOBALS['jobs'] === 2 && $pdo->sqliteCreateFunction('probe', fn () => throw new PDOException('gone'));
        }});
        $worker->run();
    """
    async with running(code, queue.url, SHOP_DSN="sqlite::memory:") as process:
        said = await text(process)
    words = [word for line in said.splitlines() for word in line.partition("20")[0].split()]
    assert words == ["new", "same", "new"], said
