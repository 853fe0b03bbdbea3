"""`jobqueue config` and `jobqueue completion`, the latter in a real shell."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from jobqueue import settings
from tests.kit.service import JOBQUEUE, ROOT
from tests.kit.shell import Shell, Terminal, environment


async def test_config_prints_a_file_that_serve_takes(tmp_path: Path) -> None:
    ran = await Shell("").run("config")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (ROOT / "conf" / "jobqueue.toml").read_text()
    file = tmp_path / "jobqueue.toml"
    file.write_text(ran.out)
    assert settings.load(file=str(file), environment={}) == settings.Settings()


async def test_config_prints_the_schema_that_the_first_line_of_the_file_names() -> None:
    ran = await Shell("").run("config", "--schema")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (ROOT / "conf" / "jobqueue.schema.json").read_text()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `jobqueue` is this project's."""
    program = tmp_path / "jobqueue"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(JOBQUEUE)} "$@"\n')
    program.chmod(0o755)
    return f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"


async def test_bash_completes_commands_and_options(path: str) -> None:
    bash = shutil.which("bash")
    assert bash
    async with Terminal([bash, "--norc", "--noprofile", "-i"], environment("") | {"PATH": path, "PS1": "> "}) as shell:
        shell.type('eval "$(jobqueue completion bash)"; echo read$((1))\n')
        await shell.see(r"read1\n")
        shell.type("jobqueue healthc\t")
        await shell.see(r"> jobqueue healthcheck $")
        shell.type("--li\t")
        await shell.see(r"jobqueue healthcheck --live $")
        shell.type("\x15jobqueue to\t\t")
        await shell.see(r"token +topics")


@pytest.mark.parametrize(("shell", "word"), [("zsh", "compdef"), ("fish", "complete --no-files --command jobqueue")])
async def test_other_shells_have_a_script_too(shell: str, word: str) -> None:
    ran = await Shell("").run("completion", shell)
    assert ran.code == 0
    assert word in ran.out and "_JOBQUEUE_COMPLETE" in ran.out


async def test_a_shell_that_click_does_not_know_is_refused() -> None:
    ran = await Shell("").run("completion", "tcsh")
    assert ran.code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in ran.err
