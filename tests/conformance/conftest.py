"""Fixtures: each client in turn, and a stage for it."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.participants import PARTICIPANTS, Participant
from tests.conformance.shift import Shift
from tests.conformance.stage import Stage
from tests.kit.redis_server import RedisServer


@pytest.fixture(scope="module", params=PARTICIPANTS, ids=lambda participant: participant.name)
def participant(request: pytest.FixtureRequest) -> Participant:
    """A client. It is skipped if its program is missing; .ci/run installs all of them and allows no skip."""
    chosen: Participant = request.param
    if missing := chosen.lacks():
        pytest.skip(missing)
    return chosen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(participant: Participant) -> AsyncIterator[Stage]:
    """A Redis, a service and a proxy, shared by all tests of one client in a module."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as server:
        async with Stage(server, Path(folder)) as stage:
            yield stage


_numbers = itertools.count(1)


@pytest.fixture
def shift(participant: Participant, stage: Stage) -> Shift:
    """Workers of the client on a topic that no other test uses."""
    return Shift(participant, stage, f"work-{next(_numbers)}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the scenes that a client cannot play because its language cannot express them, as its README says."""

    def cannot(item: pytest.Item) -> bool:
        values: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        return "scene" in values and values["participant"].name in values["scene"].get("cannot", ())

    out = [item for item in items if cannot(item)]
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=out)
