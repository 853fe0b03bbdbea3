"""What the Python worker puts into one request."""

from __future__ import annotations

import asyncio

from jobqueue_client.worker.outbox import Outbox


async def test_a_request_leaves_room_for_the_pop_behind_its_ends() -> None:
    outbox = Outbox()
    sent = [asyncio.create_task(outbox.send({"command": "finish", "id": "x", "lease": 1})) for _ in range(1500)]
    first = await asyncio.wait_for(outbox.take(), 10)
    assert (len(first), outbox.open) == (999, 1500)
    assert outbox.settle(first, [{"success": True}] * 999) == []
    assert (len(await outbox.take()), outbox.open) == (501, 501)
    for each in sent:
        each.cancel()
