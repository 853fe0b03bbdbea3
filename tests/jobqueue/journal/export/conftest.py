from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder of an export."""
    return tmp_path / "out"
