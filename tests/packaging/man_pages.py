"""The man pages, made from the commands: `python -m tests.packaging.man_pages FOLDER` writes them."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

from jobqueue import __version__
from jobqueue.cli.main import main

_LINE = 200  # characters; no summary is longer


def write(folder: Path) -> None:
    """Write a page of each command."""
    folder.mkdir(parents=True, exist_ok=True)
    _complete(main)
    write_man_pages("jobqueue", main, version=__version__, target_dir=str(folder))


def _complete(command: click.Command) -> None:
    """click-man cuts summaries short, and leaves out what stands behind the options."""
    command.short_help = command.get_short_help_str(_LINE).removesuffix(".")
    command.help = "\n\n".join(filter(None, (command.help, command.epilog)))
    for each in getattr(command, "commands", {}).values():
        _complete(each)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
