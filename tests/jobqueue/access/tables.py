"""Tables of tokens, each as a process of its own has it: over its own connection, with its own bell and roll."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from buckets.access import Tokens
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.timers.members import Members
from buckets.waiting.notifier import Notifier
from jobqueue.access.issuing import Issued, Issuing
from jobqueue.access.token_table import Table, TokensFile


@contextlib.asynccontextmanager
async def process(url: str, *, file: str = "", hears: bool = True, signs: bool = True) -> AsyncIterator[Table]:
    """The table of a process while its loops run. `hears`: the bell; `signs`: the roll."""
    redis = Redis(url, timeout_s=1.0)
    pool = await Pool.open(redis)
    notifier = Notifier(pool)
    members = Members(pool, notifier)
    table = Table(Tokens(pool), members, notifier, TokensFile(file) if file else None)
    loops = [notifier.run] * hears + [members.run] * signs + [table.run]
    tasks = [asyncio.create_task(loop()) for loop in loops]
    try:
        yield table
    finally:
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await pool.close()
        await redis.close()


async def create(issuing: Issuing, name: str, **fields: Any) -> Issued:
    """A new token that may produce, unless told otherwise."""
    return await issuing.create({"name": name, "rights": ["produce"], **fields}, "the test")


def knows(table: Table, issued: Issued) -> bool:
    """Whether the token is live in the table."""
    record = table.of_digest(bytes.fromhex(issued.token.digest))
    return record is not None and record.id == issued.record.id
