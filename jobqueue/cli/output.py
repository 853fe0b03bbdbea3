"""The output of the command line: tables on a terminal, the service's JSON elsewhere; questions and progress.

Answers go to standard output. Everything else (refusals, questions, progress) goes to standard error, so that a pipe
gets only answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

from jobqueue.cli import humanize
from jobqueue.cli.client import Answer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # None if the shell closed it (`<&-`)


class Output:
    """Where answers go, and in which form."""

    def __init__(self, as_json: bool) -> None:
        self._terminal = _is_terminal(sys.stdout)
        self.as_json = as_json or not self._terminal

    @property
    def console(self) -> Console:
        """The terminal for rich."""
        from rich.console import Console  # noqa: PLC0415 - a script in a pipe does not wait for rich to load

        return Console(highlight=False, markup=False, emoji=False)

    def json(self, answer: Answer) -> None:
        """Print the answer as it arrived, on one line. (A body may have been sent on several lines; JSON strings
        contain no line ends, and elsewhere line ends do not matter.)"""
        line = answer.raw.replace(b"\r", b" ").replace(b"\n", b" ")
        click.echo(humanize.clean(line.decode()) if self._terminal else line)

    def say(self, sentence: str) -> None:
        """Print a sentence for people, between the answers, unless the output is JSON."""
        if not self.as_json:
            click.echo(humanize.clean(sentence))

    def show(self, answer: Answer) -> None:
        """Print an answer about one thing."""
        if self.as_json:
            self.json(answer)
        else:
            self.table("answer", answer.fields)

    def table(self, kind: str, content: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Print a table. `kind`: the name of its function in `tables`."""
        from jobqueue.cli import tables  # noqa: PLC0415 - it needs rich

        made: RenderableType = getattr(tables, kind)(content)
        self.console.print(made)


def complain(sentence: str) -> None:
    """Print an error on standard error."""
    click.echo(f"Error: {humanize.clean(sentence)}", err=True)


def remark(sentence: str) -> None:
    """Print a sentence for people on standard error."""
    click.echo(humanize.clean(sentence), err=True)


def can_ask() -> bool:
    """Whether there is a terminal to ask on."""
    return _is_terminal(sys.stdin) and _is_terminal(sys.stderr)


def insist_on_terminal() -> None:
    """Raise UsageError if there is no terminal to ask on."""
    if not can_ask():
        raise click.UsageError("this may affect many jobs, and there is no terminal to ask on: use --yes")


def confirm(question: str) -> None:
    """Ask for confirmation on the terminal. Raises Abort for a no."""
    click.confirm(humanize.clean(question), abort=True, err=True)


@contextmanager
def progress(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while the block runs, if there is a terminal and any work. Yields a function that advances
    the bar by a number of jobs."""
    if not (total and _is_terminal(sys.stderr)):
        yield lambda some: None
        return
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(humanize.clean(doing), total=total)
        yield lambda some: bar.advance(task, some)
