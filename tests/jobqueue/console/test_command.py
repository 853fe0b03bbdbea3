"""`jobqueue console` as it is typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobqueue.cli.console.command import console_command
from jobqueue.errors import SettingsError
from jobqueue.settings import Settings, load_of_console


def test_a_wrong_option_is_refused_with_what_is_allowed(subtests: pytest.Subtests) -> None:
    cases: list[tuple[tuple[str, ...], str]] = [
        (("--name", "queue.example:8443"), "console_hosts: 'queue.example:8443' is not a host such as console.example"),
        (("--name", "https://queue.example"), "without a scheme and a port"),
        (("--base-path", "queue"), "console_base_path: 'queue' is not a path such as /queue"),
        (("--base-path", "/a b"), "is not a path such as /queue"),
        (("--colour", "pink"), "'grey', 'blue', 'green', 'amber', 'red', 'purple'"),
        (("--port", "70000"), "0<=x<=65535"),
        (("--ca-file", "/nowhere"), "ca_file is for https URLs"),
        (("--token-file", "x"), "No such option"),
        (("--config", "/nowhere.toml"), "the settings file /nowhere.toml cannot be read"),
    ]
    for typed, said in cases:
        with subtests.test(typed=typed, said=said):
            ran = CliRunner().invoke(console_command, typed)
            assert ran.exit_code in (1, 2)
            assert said in ran.output


def test_a_console_that_cannot_listen_says_so() -> None:
    ran = CliRunner().invoke(console_command, ["--host", "192.0.2.1"])
    assert ran.exit_code == 1
    assert "it cannot listen on 192.0.2.1:8001" in ran.output


def test_without_its_library_it_names_the_extra() -> None:
    program = "import sys; sys.modules['jinja2'] = None; from jobqueue.cli.main import main; main(['console'])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "the console needs the library jinja2: install the extra [console] of jobqueue: " in ran.stderr


def test_it_reads_the_file_of_a_service_whose_secrets_are_not_here(tmp_path: Path) -> None:
    """As in a container of its own, from the image of the service."""
    file = tmp_path / "jobqueue.toml"
    file.write_text(
        'redis_file = "/nowhere"\ntls_cert = "/c"\ntls_key = "/k"\nconsole_port = 8000\nconsole_title = "production"\n'
        '[protocols.lmstfy]\npath = "/l"\ntoken_file = "/nowhere"\n'
    )
    chosen = load_of_console({}, str(file), {"JOBQUEUE_CONSOLE_COLOUR": "red", "JOBQUEUE_REDIS_FILE": "/nowhere"})
    assert chosen == Settings(console_port=8000, console_title="production", console_colour="red")
    file.write_text("console_titel = 1\n")
    with pytest.raises(SettingsError, match=r"unknown setting console_titel in .*; did you mean console_title"):
        load_of_console({}, str(file), {})
