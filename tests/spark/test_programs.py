"""A short run of the worked example, so that it does not rot."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.acceptance.service import ROOT

pytestmark = pytest.mark.slow


def said(program: str, *arguments: str) -> str:
    """The output of a program; fails if the program does."""
    ran = subprocess.run(
        [sys.executable, "-m", program, *arguments], check=False, capture_output=True, text=True, timeout=230, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    return ran.stdout


def test_the_worked_example_calls_each_order_as_often_as_it_should_and_none_early() -> None:
    reported = said("tests.spark.demo", "300", "5", "10")
    assert (
        "every order as often as it should be, none early" in reported
        and "reconcile after     {'finished': 300}" in reported
    )
