"""What the Python worker puts into one request."""

from __future__ import annotations

import asyncio

from jobqueue_client.ends import Ends


async def test_a_request_leaves_a_place_for_the_pop_behind_its_ends() -> None:
    ends = Ends()
    sent = [asyncio.create_task(ends.send({"command": "finish", "id": "x", "lease": 1})) for _ in range(1500)]
    first = await asyncio.wait_for(ends.take(), 10)
    assert (len(first), ends.open) == (999, 1500)
    assert ends.settle(first, [{"success": True}] * 999) == []
    assert (len(await ends.take()), ends.open) == (501, 501)
    for each in sent:
        each.cancel()
