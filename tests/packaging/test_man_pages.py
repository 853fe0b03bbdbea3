"""The man pages, as `make man` writes them and as `man` shows them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from jobqueue.cli.main import main
from tests.deploy.programs import program


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    command = [sys.executable, "-m", "tests.packaging.man_pages", str(folder)]
    subprocess.run(command, check=True, timeout=60)
    return folder


def commands(name: str = "jobqueue", command: click.Command = main) -> Iterator[tuple[str, click.Command]]:
    """Each command by the name of its page."""
    yield name, command
    for below, each in getattr(command, "commands", {}).items():
        yield from commands(f"{name}-{below}", each)


def test_each_command_has_a_page_that_shows_its_options(pages: Path) -> None:
    found = dict(commands())
    assert {page.name for page in pages.iterdir()} == {f"{name}.1" for name in found}
    assert len(found) > 35
    for name, command in found.items():
        shown = _shown(pages / f"{name}.1")
        assert f"{name} - " in shown and "..." not in shown.partition("SYNOPSIS")[0], shown
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.opts[0] in shown, (name, option.opts)


def test_a_page_holds_what_stands_behind_the_options_too(pages: Path) -> None:
    shown = _shown(pages / "jobqueue-add.1")
    assert "DURATION: seconds, or such as 90s" in shown
    assert '"…"' in shown


def _shown(page: Path) -> str:
    """A page as `man` shows it on a wide terminal; groff finds nothing wrong with it."""
    command = [program("groff"), "-ww", "-k", "-man", "-Tutf8", "-P-c", "-P-bou", "-rLL=400n", "-rHY=0", str(page)]
    ran = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert ran.stderr == b"", ran.stderr.decode()
    return ran.stdout.decode().replace("\u2212", "-").replace("\u2010", "-")
