"""jobqueue.engine.operating: a plan is started with its own count only, and only once it is planned."""

from __future__ import annotations

import pytest

from buckets import Operations, Pool
from buckets.errors import WrongState
from buckets.operations.store import Asked, Filter
from jobqueue.engine.operating import Operating


async def test_a_plan_that_is_still_made_is_not_started_whatever_is_expected(pool: Pool) -> None:
    operations = Operations(pool)
    operation = await operations.plan(Asked("kick", Filter(topic="t"), 0))
    with pytest.raises(WrongState, match="an operation that is planning cannot be started"):
        await Operating(operations).start(operation.id, 7, None)
    await operations.change(operation.id, ["planning"], state="planned", count=3)
    with pytest.raises(WrongState, match="the plan has 3 jobs, not 7"):
        await Operating(operations).start(operation.id, 7, None)
    assert (await Operating(operations).start(operation.id, 3, None)).state == "waiting"
