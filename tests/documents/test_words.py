"""What users read in a terminal, help and messages, is in the words of today."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from jobqueue.cli.main import main
from tests.kit.service import ROOT

_PRODUCT = ("buckets", "jobqueue", "clients/python/jobqueue_client", "clients/spark/pyspark_jobqueue")
_DATED = re.compile(r"\b(but for|any more|anew|founds|founded|told|tells? (?:of|nothing|what|the|that))\b")
"""Instead of except, no longer, again, creates, created, reported or recorded, reports."""
_BEGINS = re.compile(r"\b(but|any|anew|founds|founded|told|tells?)\b")
"""A file with a dated word has one of these, wherever its lines are broken."""


def literals(file: Path) -> Iterator[tuple[int, str]]:
    """The strings of a file, with their lines, without docstrings."""
    source = file.read_text()
    nodes = [*ast.walk(ast.parse(source))] if _BEGINS.search(source) else []
    statements = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
    for each in nodes:
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in statements:
            yield each.lineno, each.value


def helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """The help of a command and of those below it."""
    context = click.Context(command, info_name=name)
    yield name, command.get_help(context)
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        yield from helps(each, f"{name} {each.name}")


def test_no_message_has_a_dated_word() -> None:
    files = [file for folder in _PRODUCT for file in (ROOT / folder).rglob("*.py")]
    found = [
        f"{file.relative_to(ROOT)}:{line}: {dated[0]}"
        for file in files
        for line, text in literals(file)
        if " " in text and (dated := _DATED.search(text))
    ]
    assert len(files) > 400 and found == []


def test_no_help_has_a_dated_word() -> None:
    texts = dict(helps(main, "jobqueue"))
    assert len(texts) > 50
    assert [f"{name}: {dated[0]}" for name, text in texts.items() if (dated := _DATED.search(text))] == []
