"""The flag --plot, and the modules that draw."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark_jobqueue.errors import BadOption


def add_flag(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--plot", metavar="FILE", help="draw a chart: .png or .svg (needs matplotlib)")


def module(name: str, file: str | None) -> Any:
    """The module of `parts` that draws, where a file is asked for. Raises BadOption, before anything is read."""
    if file is None:
        return None
    if not file.endswith((".png", ".svg")):
        raise BadOption(f"--plot must name a .png or .svg file, not {file!r}")
    if not Path(file).resolve().parent.is_dir():
        raise BadOption(f"--plot: no such folder: {str(Path(file).resolve().parent)!r}")
    try:
        return import_module(f"pyspark_jobqueue.pipelines.parts.{name}")
    except ModuleNotFoundError as error:  # matplotlib is an extra
        raise BadOption(f"--plot needs matplotlib ({error}): pip install 'matplotlib>=3.10,<4'") from None
